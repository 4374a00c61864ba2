/* vcuda-turn-keeper: gives the containers of each GPU exclusive turns.

   usage: vcuda-turn-keeper STATE_DIR PARENT

   It runs as a child of PARENT, the process that has the claim socket, and ends with it. One keeper
   at a time holds the lock STATE_DIR/turns.lock; another waits for it. It follows the records in
   STATE_DIR/allocations, of which the claim writes each last, when the container's pages are
   there. It writes its figures into STATE_DIR/turns.  */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "keeper/gpu.h"
#include "tenant/container.h"
#include "tenant/ends.h"
#include "tenant/events.h"
#include "tenant/figures.h"
#include "tenant/mapped.h"

#define SUFFIX ".json"
/* A page that is leased, or written anew, is tried again so soon.  */
#define AGAIN_MS 50
/* A keeper that waits for the lock tries it so often.  */
#define LOCK_MS 20

static const char *state_dir;
static int inotify;
static struct container **containers;
static size_t container_count;
static volatile sig_atomic_t ended;

static void
fail (const char *what, const char *where, const char *hint)
{
  fprintf (stderr, "vcuda-turn-keeper: %s: %s: %s; %s\n", where, what, strerror (errno), hint);
  exit (1);
}

static void
end (int number)
{
  (void) number;
  ended = 1;
}

/* Signals come while the program sleeps in `pause_for`, and never between two checks of `ended`. */
static void
follow_parent (pid_t parent)
{
  struct sigaction action = { .sa_handler = end };
  sigset_t signals;
  sigemptyset (&signals);
  sigaddset (&signals, SIGTERM);
  sigaddset (&signals, SIGINT);
  sigprocmask (SIG_BLOCK, &signals, NULL);
  sigaction (SIGTERM, &action, NULL);
  sigaction (SIGINT, &action, NULL);
  prctl (PR_SET_PDEATHSIG, SIGTERM);
  if (getppid () != parent)
    exit (0);
}

/* Until FD can be read, a signal comes, or MS milliseconds have passed; -1: no limit.  */
static void
pause_for (int fd, int ms)
{
  struct pollfd watch = { .fd = fd, .events = POLLIN };
  struct timespec span = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000l };
  sigset_t none;
  sigemptyset (&none);
  if (ppoll (&watch, 1, ms < 0 ? NULL : &span, &none) < 0 && errno != EINTR)
    fail ("cannot wait", state_dir, "report it");
}

static void
take_lock (void)
{
  char path[4096];
  snprintf (path, sizeof path, "%s/turns.lock", state_dir);
  int fd = open (path, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    fail ("cannot be opened", path, "give the state-dir of config.toml, and run it as root");
  while (flock (fd, LOCK_EX | LOCK_NB) != 0)
    {
      pause_for (-1, LOCK_MS);
      if (ended)
        exit (0);
    }
}

static bool
is_known (const char *id)
{
  for (size_t i = 0; i < container_count; i++)
    if (strcmp (containers[i]->id, id) == 0)
      return true;
  return false;
}

static void
for_each_gpu (struct container *container, bool added)
{
  for (unsigned i = 0; i < container->gpu_count; i++)
    {
      if (container->limits_at->gpu[i].mps_percent)
        continue; /* it has no turns */
      struct gpu *gpu = gpu_of (container->uuid[i]);
      if (gpu && added)
        gpu_add (gpu, container, i);
      else if (gpu)
        gpu_remove (gpu, container);
    }
}

static bool
has_record (const char *id)
{
  char path[4096];
  snprintf (path, sizeof path, "%s/allocations/%s" SUFFIX, state_dir, id);
  return access (path, F_OK) == 0;
}

static void
drop_ended (void)
{
  for (size_t i = 0; i < container_count;)
    if (has_record (containers[i]->id) && container_is_current (containers[i], state_dir))
      i++;
    else
      {
        for_each_gpu (containers[i], false);
        if (containers[i]->watch >= 0)
          inotify_rm_watch (inotify, containers[i]->watch);
        container_close (containers[i]);
        containers[i] = containers[--container_count];
      }
}

/* True: its pages could not be opened.  */
static bool
add (const char *id)
{
  struct container **more = realloc (containers, (container_count + 1) * sizeof *more);
  struct container *container = more ? container_open (state_dir, id) : NULL;
  if (more)
    containers = more;
  if (!container)
    return true;
  containers[container_count++] = container;
  ends_watch (inotify, state_dir, container);
  for_each_gpu (container, true);
  return false;
}

/* True: try again soon.  */
static bool
follow_records (void)
{
  char path[4096];
  bool again = false;
  drop_ended ();
  snprintf (path, sizeof path, "%s/allocations", state_dir);
  DIR *folder = opendir (path);
  for (struct dirent *entry; folder && (entry = readdir (folder));)
    {
      char *suffix = strstr (entry->d_name, SUFFIX);
      if (!suffix || suffix == entry->d_name || suffix[strlen (SUFFIX)])
        continue;
      *suffix = 0;
      if (!is_known (entry->d_name))
        again |= add (entry->d_name);
    }
  if (folder)
    closedir (folder);
  return again;
}

/* The records' watch.  */
static int
watch_records (void)
{
  char path[4096];
  snprintf (path, sizeof path, "%s/allocations", state_dir);
  inotify = inotify_init1 (IN_NONBLOCK | IN_CLOEXEC);
  int watch = inotify_add_watch (inotify, path, IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE);
  if (inotify < 0 || watch < 0)
    fail ("cannot be watched", path, "raise fs.inotify.max_user_instances and max_user_watches");
  return watch;
}

/* Events are lost where the queue is full.  */
static void
note_ends (int watch)
{
  for (size_t i = 0; i < container_count; i++)
    if (containers[i]->watch >= 0 && (watch < 0 || watch == containers[i]->watch))
      {
        ends_note (inotify, containers[i]);
        gpu_poll_now (containers[i]);
      }
}

/* Whether the records have changed.  */
static bool
read_events (int records)
{
  bool changed = false;
  _Alignas (struct inotify_event) char events[4096];
  for (ssize_t length; (length = read (inotify, events, sizeof events)) > 0;)
    for (ssize_t at = 0; at < length;)
      {
        const struct inotify_event *event = (const void *) (events + at);
        at += (ssize_t) (sizeof *event + event->len);
        changed |= event->wd == records || event->mask & IN_Q_OVERFLOW;
        if (event->wd != records && !(event->mask & IN_IGNORED))
          note_ends (event->wd);
      }
  return changed;
}

int
main (int argc, char **argv)
{
  if (argc != 3 || argv[1][0] != '/')
    {
      fputs ("usage: vcuda-turn-keeper STATE_DIR PARENT\n", stderr);
      return 2;
    }
  state_dir = argv[1];
  prctl (PR_SET_NAME, "turn_keeper");
  follow_parent (atoi (argv[2]));
  mapped_begin ();
  take_lock ();
  figures_begin (state_dir);
  events_begin (state_dir);
  int records = watch_records ();
  bool again = follow_records ();
  while (!ended)
    {
      pause_for (inotify, again ? AGAIN_MS : -1);
      if (read_events (records) || again)
        again = follow_records ();
    }
  gpu_end_all ();
  return 0;
}
