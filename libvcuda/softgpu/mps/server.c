/* The MPS server: a process of its own that holds a context on each GPU, and the daemon's side of
   its life. It does not end with the daemon: as NVIDIA's, one may be left over.  */

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mps/daemon.h"

enum
{
  CLIENT_TERMINATED = 810, /* CUDA_ERROR_MPS_CLIENT_TERMINATED */
  DRIVER_OF_ANONYMOUS_MEMORY = 580,
};

bool
mps_shared_name (char name[64], uid_t uid, pid_t pid, const struct softgpu_state *state)
{
  if (atoi (state->driver_version) >= DRIVER_OF_ANONYMOUS_MEMORY)
    return false;
  snprintf (name, 64, "cuda.shm.%u.%x.1", (unsigned) uid, (unsigned) pid);
  return true;
}

/* Whether another process has a context on the exclusive GPU.  */
static bool
is_occupied (struct softgpu_state *state, unsigned gpu)
{
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    if (state->slot[slot].kind == SOFTGPU_CUDA && state->slot[slot].gpu[gpu].contexts)
      return state->gpu[gpu].exclusive;
  return false;
}

bool
mps_is_visible (const struct attachment *tie, unsigned number)
{
  char text[16];
  const char *visible = getenv ("CUDA_VISIBLE_DEVICES");
  snprintf (text, sizeof text, "%u", number);
  return !visible || !*visible || strcmp (visible, text) == 0
         || strstr (visible, tie->state->gpu[tie->gpu[number]].uuid);
}

static bool
take_gpus (struct attachment *tie)
{
  bool any = false;
  softgpu_lock (tie);
  softgpu_reap (tie);
  for (unsigned i = 0; i < tie->gpu_count; i++)
    {
      unsigned gpu = tie->gpu[i];
      if (!mps_is_visible (tie, i) || is_occupied (tie->state, gpu))
        continue;
      softgpu_own_slot (tie)->gpu[gpu].contexts = 1;
      softgpu_own_slot (tie)->gpu[gpu].held_bytes = tie->state->context_bytes;
      any = true;
    }
  softgpu_unlock (tie);
  return any;
}

static bool
make_shared (uid_t uid, bool multiuser, const struct softgpu_state *state)
{
  char name[64], path[96];
  if (!mps_shared_name (name, uid, getpid (), state))
    return true;
  snprintf (path, sizeof path, "/dev/shm/%s", name);
  int fd = open (path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool made = fd >= 0 && ftruncate (fd, 4096) == 0 && fchmod (fd, multiuser ? 0666 : 0600) == 0;
  if (fd >= 0)
    close (fd);
  return made;
}

_Noreturn void
mps_serve (int fd, uid_t uid, bool multiuser)
{
  struct attachment tie;
  sigset_t ends;
  sigemptyset (&ends);
  sigaddset (&ends, SIGTERM);
  sigprocmask (SIG_BLOCK, &ends, NULL);
  prctl (PR_SET_NAME, "nvidia-cuda-mps");
  if ((!multiuser && geteuid () == 0 && setuid (uid) != 0)
      || softgpu_attach (&tie, SOFTGPU_MPS_SERVER) != ATTACHED
      || !make_shared (uid, multiuser, tie.state) || !take_gpus (&tie))
    exit (1);
  uint32_t place[] = { tie.slot, softgpu_own_slot (&tie)->generation };
  if (write (fd, place, sizeof place) != sizeof place)
    exit (1);
  close (fd);
  int number;
  while (sigwait (&ends, &number) != 0)
    continue;
  softgpu_lock (&tie);
  softgpu_fault_clients (tie.state, tie.slot, SOFTGPU_SERVER_DIED);
  softgpu_unlock (&tie);
  softgpu_detach (&tie);
  exit (0);
}

/* Beside the daemon's own program.  */
static void
run_server (int fd, const struct server *server)
{
  char path[4096], where[16], user[16];
  ssize_t length = readlink ("/proc/self/exe", path, sizeof path - 32);
  if (length <= 0)
    _exit (1);
  path[length] = 0;
  strcpy (strrchr (path, '/') + 1, "nvidia-cuda-mps-server");
  snprintf (where, sizeof where, "%d", fd);
  snprintf (user, sizeof user, "%u", (unsigned) server->uid);
  if (*server->gpus)
    setenv ("CUDA_VISIBLE_DEVICES", server->gpus, 1);
  execl (path, "nvidia-cuda-mps-server", where, user, mps.multiuser ? "multiuser" : "single", NULL);
  _exit (1);
}

void
mps_start_server (struct server *server)
{
  int ends[2];
  if (pipe (ends) != 0)
    return;
  fcntl (ends[0], F_SETFD, FD_CLOEXEC);
  /* A server that is told to end before its program has begun must not lose the signal.  */
  sigset_t signals;
  sigemptyset (&signals);
  sigaddset (&signals, SIGTERM);
  sigprocmask (SIG_BLOCK, &signals, NULL);
  pid_t pid = fork ();
  if (pid == 0)
    run_server (ends[1], server);
  sigprocmask (SIG_UNBLOCK, &signals, NULL);
  close (ends[1]);
  server->pid = pid;
  server->fd = ends[0];
  if (mps.version != MPS_V3)
    server->space[0].limits = mps.limits;
  mps_log ("Starting new server %d for user %u", (int) pid, (unsigned) server->uid);
}

void
mps_end_server (struct server *server)
{
  if (!server->pid || server->ending)
    return;
  server->ending = true;
  kill (server->pid, SIGTERM);
}

void
mps_terminate (const struct connection *client)
{
  softgpu_lock (&mps.tie);
  softgpu_fault (mps.tie.state, client->slot, CLIENT_TERMINATED);
  softgpu_unlock (&mps.tie);
}

bool
mps_server_recovers (const struct server *server)
{
  return server->ready && mps.tie.state->slot[server->slot].fault;
}

static void
notice_ready (struct server *server)
{
  uint32_t place[2];
  struct pollfd pipe = { .fd = server->fd, .events = POLLIN };
  if (poll (&pipe, 1, 0) != 1 || read (server->fd, place, sizeof place) != sizeof place)
    return;
  server->slot = place[0];
  server->generation = place[1];
  server->ready = true;
  mps_log ("Server %d is ready", (int) server->pid);
}

static void
watch (struct server *server)
{
  if (!server->ready && !server->ending)
    notice_ready (server);
  if (waitpid (server->pid, NULL, WNOHANG) != server->pid)
    return;
  mps_log ("Server %d exited", (int) server->pid);
  char name[64], path[96];
  if (mps_shared_name (name, server->uid, server->pid, mps.tie.state))
    {
      snprintf (path, sizeof path, "/dev/shm/%s", name);
      unlink (path);
    }
  close (server->fd);
  softgpu_lock (&mps.tie);
  softgpu_reap (&mps.tie);
  softgpu_unlock (&mps.tie);
  if (!server->ready)
    mps_refuse (server);
  server->pid = 0;
  server->ready = server->ending = false;
  if (mps.version != MPS_V3)
    memset (server->partition, 0, sizeof server->partition);
  if (server->removed)
    *server = (struct server){ 0 };
}

void
mps_watch_servers (void)
{
  for (unsigned i = 0; i < MPS_SERVERS; i++)
    if (mps.server[i].pid)
      watch (&mps.server[i]);
}
