/* A library for LD_PRELOAD: after arm (AT), the process is killed when it reads a clock for the
   AT-th time.  */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <time.h>

static long left;

void
arm (long at)
{
  left = at;
}

int
clock_gettime (clockid_t clock, struct timespec *now)
{
  if (left && --left == 0)
    raise (SIGKILL);
  return ((int (*) (clockid_t, struct timespec *)) dlsym (RTLD_NEXT, "clock_gettime")) (clock, now);
}
