/* Releases a container's share after its `delete`, in the order that oci/vcuda_oci/ledger/ledger.py
   gives: under the lock, the record first. Only for a record as engines usually leave it; the
   others are left to Python (oci/vcuda_oci/start/after_delete.py).  */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "ended_page.h"
#include "mount_points.h"
#include "release.h"

#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+:@=,-"
#define RECORD_MOST_BYTES 65536
#define LOCK_PATIENCE_S 30
#define STEPS_PER_S 1000

/* Whether the record belongs to the container of `runtime` below `root` ("": its default), in the
   form that Python writes.  */
static bool
is_record_of (const char *text, const char *id, const char *runtime, const char *root)
{
  char by[2 * PATH_MAX + 64], of[PATH_MAX];
  snprintf (by, sizeof by,
            *root ? "\"runtime\":[\"%s\",\"--root\",\"%s\"]" : "\"runtime\":[\"%s\"]", runtime,
            root);
  snprintf (of, sizeof of, "\"container_id\":\"%s\"", id);
  return runtime[strspn (runtime, PLAIN "/")] == '\0' && root[strspn (root, PLAIN "/")] == '\0'
         && strstr (text, by) && strstr (text, of);
}

bool
find_record (struct held *held, const char *runtime, const char *root)
{
  static char text[RECORD_MOST_BYTES];
  const char *id = held->id;
  if (!*id || *id == '.' || id[strspn (id, PLAIN)]
      || snprintf (held->record, PATH_MAX, "%s/allocations/%s.json", held->state_dir, id)
             >= PATH_MAX)
    return false;
  int fd = open (held->record, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return false;
  bool found = fstat (fd, &held->seen) == 0 && held->seen.st_uid == geteuid ();
  ssize_t got = read (fd, text, sizeof text - 1);
  close (fd);
  text[got > 0 ? got : 0] = '\0';
  held->is_plain = got > 0 && is_record_of (text, id, runtime, root);
  return found;
}

/* Appends the event that oci/vcuda_oci/ledger/events.py describes. An error fails nothing.  */
static void
emit_released (const struct held *held)
{
  char path[PATH_MAX], line[1024];
  struct timespec now;
  clock_gettime (CLOCK_REALTIME, &now);
  int size = snprintf (line, sizeof line,
                       "{\"time\":%lld.%06ld,\"from\":\"vcuda-container-runtime\","
                       "\"kind\":\"released\",\"allocation\":\"%s\","
                       "\"text\":\"its container is deleted\",\"container\":\"%s\"}\n",
                       (long long) now.tv_sec, now.tv_nsec / 1000, held->id, held->id);
  snprintf (path, sizeof path, "%s/events.jsonl", held->state_dir);
  int fd = open (path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0640);
  if (fd < 0)
    return;
  if (size > 0 && (size_t) size < sizeof line && write (fd, line, (size_t) size) < 0)
    fprintf (
        stderr,
        "vcuda-container-runtime: %s: cannot be written: %s; free space there, or set state-dir"
        " (allocation %s)\n",
        path, strerror (errno), held->id);
  close (fd);
}

static int
lock_ledger (const char *state_dir)
{
  char path[PATH_MAX];
  snprintf (path, sizeof path, "%s/lock", state_dir);
  int fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0)
    return -1;
  for (int step = 0; step < LOCK_PATIENCE_S * STEPS_PER_S; step++)
    {
      const struct timespec pause = { .tv_nsec = 1000000000 / STEPS_PER_S };
      if (flock (fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
      nanosleep (&pause, NULL);
    }
  close (fd);
  return -1;
}

/* Call under the lock: a new container with this id has no mounts yet.  */
static void
remove_mount_points_of (const struct held *held)
{
  char path[PATH_MAX];
  if (snprintf (path, sizeof path, "%s/containers/%s/mount-points", held->state_dir, held->id)
      >= PATH_MAX)
    return;
  int note = open (path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (note < 0)
    return;
  remove_mount_points (note, -1);
  close (note);
}

bool
release (const struct held *held)
{
  struct stat now = { 0 };
  char folder[PATH_MAX];
  int lock = lock_ledger (held->state_dir);
  if (lock < 0)
    return false;
  bool is_removed = lstat (held->record, &now) != 0 && errno == ENOENT;
  bool is_same = !is_removed && now.st_dev == held->seen.st_dev && now.st_ino == held->seen.st_ino
                 && now.st_mtim.tv_sec == held->seen.st_mtim.tv_sec
                 && now.st_mtim.tv_nsec == held->seen.st_mtim.tv_nsec;
  if (is_same)
    remove_mount_points_of (held);
  if (is_same && unlink (held->record) == 0)
    {
      snprintf (folder, sizeof folder, "%s/containers/%s", held->state_dir, held->id);
      remove_pages (held->state_dir, folder);
      emit_released (held);
      is_removed = true;
    }
  close (lock);
  return is_removed;
}
