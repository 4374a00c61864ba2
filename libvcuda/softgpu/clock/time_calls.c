/* The calls that read a clock or sleep, in place of the C library's. Clocks that count from boot
   are virtual; the date and processor time stay real.  */

#include <sys/syscall.h>
#include <unistd.h>

#include "clock/owner.h"
#include "clock/raw_call.h"
#include "clock/slots.h"

#define COARSE_NS 4000000ull

static bool
since_boot (clockid_t clock)
{
  return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE
         || clock == CLOCK_BOOTTIME;
}

EXPORT int
clock_gettime (clockid_t clock, struct timespec *now)
{
  if (!softclock_shared || !since_boot (clock))
    return (int) softclock_answer (SOFTCLOCK_RAW (SYS_clock_gettime, clock, now, 0, 0));
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
  if (!softclock_is_span (span))
    return EINVAL;
  softclock_sleep_until ((until ? 0 : softclock_peek ()) + softclock_nanoseconds (span));
  return 0;
}

EXPORT int
nanosleep (const struct timespec *span, struct timespec *left)
{
  return (int) softclock_answer (-clock_nanosleep (CLOCK_MONOTONIC, 0, span, left));
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
