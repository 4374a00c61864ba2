/* The MPS server: a process of its own that holds a context on each GPU, and the daemon's side of
   its life. It does not end with the daemon: as NVIDIA's, one may be left over.  */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/device_time.h"
#include "mps/daemon.h"

enum
{
  CUDA_13_1 = 13010,
  CLIENTS = 48,
  CLIENTS_OF_13_1 = 60,
};

unsigned
mps_most_clients (void)
{
  return mps.tie.state->cuda_version >= CUDA_13_1 ? CLIENTS_OF_13_1 : CLIENTS;
}

void
mps_shared_name (char name[64], uid_t uid, pid_t pid)
{
  snprintf (name, 64, "cuda.shm.%u.%x.1", (unsigned) uid, (unsigned) pid);
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

static bool
take_gpus (struct attachment *tie)
{
  const char *visible = getenv ("CUDA_VISIBLE_DEVICES");
  bool any = false;
  softgpu_lock (tie);
  softgpu_reap (tie);
  for (unsigned i = 0; i < tie->gpu_count; i++)
    {
      unsigned gpu = tie->gpu[i];
      char number[16];
      snprintf (number, sizeof number, "%u", i);
      if (visible && *visible && !strstr (visible, tie->state->gpu[gpu].uuid)
          && strcmp (visible, number) != 0)
        continue;
      if (is_occupied (tie->state, gpu))
        continue;
      softgpu_own_slot (tie)->gpu[gpu].contexts = 1;
      softgpu_own_slot (tie)->gpu[gpu].held_bytes = tie->state->context_bytes;
      any = true;
    }
  softgpu_unlock (tie);
  return any;
}

static bool
make_shared (uid_t uid, bool multiuser)
{
  char name[64], path[96];
  mps_shared_name (name, uid, getpid ());
  snprintf (path, sizeof path, "/dev/shm/%s", name);
  int fd = open (path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  bool made = fd >= 0 && ftruncate (fd, 4096) == 0 && fchmod (fd, multiuser ? 0666 : 0600) == 0
              && (geteuid () != 0 || multiuser || fchown (fd, uid, (gid_t) -1) == 0);
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
  if (!make_shared (uid, multiuser) || (!multiuser && geteuid () == 0 && setuid (uid) != 0)
      || softgpu_attach (&tie, SOFTGPU_MPS_SERVER) != ATTACHED || !take_gpus (&tie))
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
run_server (int fd, uid_t uid)
{
  char path[4096], where[16], user[16];
  ssize_t length = readlink ("/proc/self/exe", path, sizeof path - 32);
  if (length <= 0)
    _exit (1);
  path[length] = 0;
  strcpy (strrchr (path, '/') + 1, "nvidia-cuda-mps-server");
  snprintf (where, sizeof where, "%d", fd);
  snprintf (user, sizeof user, "%u", (unsigned) uid);
  execl (path, "nvidia-cuda-mps-server", where, user, mps.multiuser ? "multiuser" : "single", NULL);
  _exit (1);
}

void
mps_start_server (uid_t uid)
{
  int ends[2];
  if (pipe (ends) != 0)
    return;
  fcntl (ends[0], F_SETFD, FD_CLOEXEC);
  pid_t pid = fork ();
  if (pid == 0)
    run_server (ends[1], uid);
  close (ends[1]);
  mps.server = (struct server){ .pid = pid, .fd = ends[0], .uid = uid, .limits = mps.limits };
  mps_log ("Starting new server %d for user %u", (int) pid, (unsigned) uid);
}

void
mps_end_server (void)
{
  if (!mps.server.pid || mps.server.ending)
    return;
  mps.server.ending = true;
  kill (mps.server.pid, SIGTERM);
}

bool
mps_server_recovers (void)
{
  return mps.server.ready && mps.tie.state->slot[mps.server.slot].fault;
}
