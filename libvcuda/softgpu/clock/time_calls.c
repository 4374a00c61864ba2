/* The calls that read a clock or sleep, in place of the C library's. Clocks that count from boot
   are virtual; the date and processor time stay real.  */

#include <errno.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock/owner.h"
#include "clock/raw_call.h"
#include "clock/slots.h"

#define EXPORT __attribute__ ((visibility ("default")))
#define SECOND_NS 1000000000ull
#define COARSE_NS 4000000ull

static bool
since_boot (clockid_t clock)
{
  return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE
         || clock == CLOCK_BOOTTIME;
}

static bool
sound (const struct timespec *span)
{
  return span->tv_sec >= 0 && span->tv_nsec >= 0 && (uint64_t) span->tv_nsec < SECOND_NS;
}

static uint64_t
nanoseconds (const struct timespec *span)
{
  return (uint64_t) span->tv_sec * SECOND_NS + (uint64_t) span->tv_nsec;
}

EXPORT int
clock_gettime (clockid_t clock, struct timespec *now)
{
  if (!softclock_shared || !since_boot (clock))
    {
      long answer = SOFTCLOCK_RAW (SYS_clock_gettime, clock, now, 0, 0);
      if (answer == 0)
        return 0;
      errno = (int) -answer;
      return -1;
    }
  uint64_t ns = softclock_now ();
  if (clock == CLOCK_MONOTONIC_COARSE)
    ns -= ns % COARSE_NS;
  now->tv_sec = (time_t) (ns / SECOND_NS);
  now->tv_nsec = (long) (ns % SECOND_NS);
  return 0;
}

/* Returns an error number, as POSIX says.  */
EXPORT int
clock_nanosleep (clockid_t clock, int flags, const struct timespec *span, struct timespec *left)
{
  bool until = flags & TIMER_ABSTIME;
  if (!softclock_slot || (until && !since_boot (clock)))
    return (int) -SOFTCLOCK_RAW (SYS_clock_nanosleep, clock, flags, span, left);
  if (!sound (span))
    return EINVAL;
  softclock_sleep_until ((until ? 0 : atomic_load (&softclock_shared->now_ns))
                         + nanoseconds (span));
  return 0;
}

EXPORT int
nanosleep (const struct timespec *span, struct timespec *left)
{
  int rc = clock_nanosleep (CLOCK_MONOTONIC, 0, span, left);
  if (rc)
    errno = rc;
  return rc ? -1 : 0;
}

EXPORT int
usleep (useconds_t us)
{
  return nanosleep (&(struct timespec){ .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 },
                    NULL);
}

EXPORT unsigned
sleep (unsigned seconds)
{
  nanosleep (&(struct timespec){ .tv_sec = seconds }, NULL);
  return 0;
}
