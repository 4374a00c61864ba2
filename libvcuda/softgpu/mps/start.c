/* The control daemon's start and end: its sockets, files and log in the pipe and log directories.
 */

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "mps/daemon.h"

static FILE *control_log;

void
mps_log (const char *format, ...)
{
  struct timespec now;
  struct tm local;
  char when[32];
  clock_gettime (CLOCK_REALTIME, &now);
  strftime (when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r (&now.tv_sec, &local));
  fprintf (control_log, "[%s.%03d Control %5d] ", when, (int) (now.tv_nsec / 1000000), getpid ());
  va_list arguments;
  va_start (arguments, format);
  vfprintf (control_log, format, arguments);
  va_end (arguments);
  fputc ('\n', control_log);
  fflush (control_log);
}

bool
mps_driver_has (int first)
{
  return atoi (mps.tie.state->driver_version) >= first;
}

bool
mps_listen (const char *folder, const char *name, unsigned mode, struct server *server,
            struct space *space)
{
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  int length = snprintf (address.sun_path, sizeof address.sun_path, "%s/%s", folder, name);
  if (length < 0 || (size_t) length >= sizeof address.sun_path || mps.listeners == MPS_LISTENERS)
    return false;
  int fd = socket (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  unlink (address.sun_path);
  if (fd < 0 || bind (fd, (const struct sockaddr *) &address, sizeof address) != 0
      || chmod (address.sun_path, mode) != 0 || listen (fd, 64) != 0)
    {
      close (fd);
      return false;
    }
  bool privileged = strcmp (name, MPS_PRIVILEGED) == 0;
  mps.listener[mps.listeners++]
      = (struct listener){ .fd = fd, .privileged = privileged, .server = server, .space = space };
  return true;
}

static bool
take_lock (const char *pipes)
{
  char path[4096];
  snprintf (path, sizeof path, "%s/control_lock", pipes);
  int fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  return fd >= 0 && flock (fd, LOCK_EX | LOCK_NB) == 0;
}

static void
write_pid (const char *path)
{
  FILE *file = fopen (path, "we");
  if (!file)
    return;
  fprintf (file, "%d\n", getpid ());
  fclose (file);
}

static void
open_logs (void)
{
  char path[4096];
  const char *folder = getenv ("CUDA_MPS_LOG_DIRECTORY");
  folder = folder && *folder ? folder : "/var/log/nvidia-mps";
  mkdir (folder, 0755);
  snprintf (path, sizeof path, "%s/control.log", folder);
  control_log = fopen (path, "ae");
  if (!control_log)
    control_log = stderr;
}

static void
end (int number)
{
  (void) number;
  mps.ended = true;
}

static void
leave_terminal (void)
{
  setsid ();
  int nothing = open ("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; nothing >= 0 && fd < 3; fd++)
    dup2 (nothing, fd);
}

static void
end_servers (void)
{
  for (unsigned i = 0; i < MPS_SERVERS; i++)
    mps_end_server (&mps.server[i]);
  for (unsigned i = 0; i < MPS_SERVERS; i++)
    while (mps.server[i].pid)
      {
        mps_watch_servers ();
        usleep (MPS_POLL_MS * 100);
      }
}

int
mps_run (const char *pipes, bool in_background)
{
  mkdir (pipes, 0755);
  if (!take_lock (pipes))
    {
      puts ("An instance of this daemon is already running");
      return 1;
    }
  mps.pipes = pipes;
  if (mps.version != MPS_V3)
    {
      strcpy (mps.server[0].name, MPS_DEFAULT);
      strcpy (mps.server[0].space[0].name, MPS_DEFAULT);
    }
  if (!mps_listen (pipes, MPS_CONTROL, 0666, NULL, NULL)
      || !mps_listen (pipes, MPS_PRIVILEGED, 0755, NULL, NULL))
    return 1;
  int ready[2] = { -1, -1 };
  pid_t pid = 0;
  if (in_background && (pipe2 (ready, O_CLOEXEC) != 0 || (pid = fork ()) < 0))
    return 1;
  if (pid)
    {
      char byte;
      close (ready[1]);
      return read (ready[0], &byte, 1) != 1;
    }
  if (mps.version == MPS_V3)
    printf ("To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=%s\n", pipes);
  fflush (stdout);
  if (in_background)
    leave_terminal ();
  open_logs ();
  if (softgpu_attach (&mps.tie, SOFTGPU_NVML) != ATTACHED)
    {
      mps_log ("No driver");
      return 1;
    }
  for (unsigned i = 0; i < mps.tie.gpu_count; i++)
    if (mps_is_visible (&mps.tie, i))
      mps.gpu[mps.gpu_count++] = mps.tie.gpu[i];
  char pid_path[4096];
  snprintf (pid_path, sizeof pid_path, "%s/nvidia-cuda-mps-control.pid", pipes);
  write_pid (pid_path);
  signal (SIGTERM, end);
  mps_log ("Start");
  if (in_background && write (ready[1], "", 1) != 1)
    return 1;
  close (ready[0]);
  close (ready[1]);
  mps_loop ();
  end_servers ();
  for (unsigned i = 0; mps.version == MPS_V3 && i < MPS_SERVERS; i++)
    mps_remove_server (&mps.server[i]);
  mps_log ("Exit");
  unlink (pid_path);
  return 0;
}
