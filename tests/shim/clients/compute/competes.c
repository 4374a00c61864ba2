/* competes WHAT SECONDS: launches kernels of 1 ms, one after the other, while other processes do;
   prints the GPU time, and how often a launch changed errno.
   contexts  4 threads, each with a context of its own
   twice     the same, in two processes
   threads   4 threads in one context
   closed    and closes the usage page's descriptors; each other time a file of its own takes the
   number  */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/gpu.h"

#define THREADS 4

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            "//softgpu entry=spin time_ns=param:0\n"
                            ".visible .entry spin(.param .u64 nanoseconds)\n{\n ret;\n}\n";
static const char *what;
static double seconds;
static int own_file = -1;
static unsigned kernels, changes, closed;

static double
now (void)
{
  struct timespec time;
  clock_gettime (CLOCK_MONOTONIC, &time);
  return (double) time.tv_sec + (double) time.tv_nsec / 1e9;
}

static void
close_descriptors (bool replace)
{
  for (int fd = 3; fd < 1024; fd++)
    {
      char link[32], path[256];
      snprintf (link, sizeof link, "/proc/self/fd/%d", fd);
      ssize_t length = readlink (link, path, sizeof path - 1);
      path[length > 0 ? length : 0] = 0;
      if (strstr (path, "/vcuda/usage"))
        {
          closed++;
          if ((replace ? dup2 (own_file, fd) != fd : close (fd) != 0))
            exit (1);
        }
    }
}

static void *
compete (void *context)
{
  CUmodule module;
  CUfunction spin;
  CUcontext own = context;
  uint64_t ns = 1000000;
  void *parameters[] = { &ns };
  if (!own)
    MUST (cuCtxCreate (&own, NULL, 0, 0));
  MUST (cuCtxSetCurrent (own));
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&spin, module, "spin"));
  double began = now ();
  for (unsigned i = 1; now () - began < seconds; i++)
    {
      if (own_file >= 0 && i % 5 == 0)
        close_descriptors (i % 10 == 0);
      errno = 1234;
      MUST (cuLaunchKernel (spin, 132, 1, 1, 1024, 1, 1, 0, NULL, parameters, NULL));
      if (errno != 1234)
        __atomic_fetch_add (&changes, 1, __ATOMIC_RELAXED);
      MUST (cuCtxSynchronize ());
      __atomic_fetch_add (&kernels, 1, __ATOMIC_RELAXED);
    }
  return NULL;
}

static bool
is_locked (int file)
{
  char path[32];
  snprintf (path, sizeof path, "/proc/self/fd/%d", file);
  int other = open (path, O_RDWR | O_CLOEXEC);
  struct flock range = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
  return fcntl (other, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

int
main (int argc, char **argv)
{
  if (argc != 3)
    return 2;
  what = argv[1];
  seconds = strtod (argv[2], NULL);
  bool is_twice = strcmp (what, "twice") == 0;
  pid_t other = is_twice ? fork () : 0;
  CUcontext context = use_gpu (0);
  if (strcmp (what, "closed") == 0)
    {
      char name[4096];
      const char *folder = getenv ("TMPDIR");
      snprintf (name, sizeof name, "%s/competes-XXXXXX", folder ? folder : "/tmp");
      own_file = mkstemp (name);
      unlink (name);
    }
  bool shared = strcmp (what, "threads") == 0;
  bool many = shared || is_twice || strcmp (what, "contexts") == 0;
  pthread_t thread[THREADS];
  for (unsigned i = 1; many && i < THREADS; i++)
    if (pthread_create (&thread[i], NULL, compete, shared ? context : NULL) != 0)
      return 1;
  compete (context);
  for (unsigned i = 1; many && i < THREADS; i++)
    pthread_join (thread[i], NULL);
  if (other)
    waitpid (other, NULL, 0);
  printf ("{\"share\": %f, \"changes\": %u, \"closed\": %u, \"locked\": %d}\n",
          kernels * 1e-3 / seconds, changes, closed, own_file >= 0 && is_locked (own_file));
  return 0;
}
