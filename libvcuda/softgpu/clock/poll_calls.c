/* `poll` and `ppoll`, in place of the C library's: a participating thread that finds no descriptor
   ready sleeps in virtual time, and looks again each millisecond.  */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "clock/owner.h"
#include "clock/raw_call.h"

#define EXPORT __attribute__ ((visibility ("default")))
#define SECOND_NS 1000000000ull
#define STEP_NS 1000000ull

static int
real_poll (struct pollfd *fds, nfds_t count, const struct timespec *span, const sigset_t *mask)
{
  struct timespec own = span ? *span : (struct timespec){ 0 };
  long answer = softclock_raw_call (SYS_ppoll, (long) fds, (long) count, span ? (long) &own : 0,
                                    (long) mask, _NSIG / 8, 0);
  if (answer >= 0)
    return (int) answer;
  errno = (int) -answer;
  return -1;
}

static int
poll_until (struct pollfd *fds, nfds_t count, uint64_t end, const sigset_t *mask)
{
  const struct timespec at_once = { 0 };
  for (;;)
    {
      int ready = real_poll (fds, count, &at_once, mask);
      uint64_t now = softclock_peek ();
      if (ready || now >= end)
        return ready;
      softclock_sleep_until (end - now < STEP_NS ? end : now + STEP_NS);
    }
}

EXPORT int
ppoll (struct pollfd *fds, nfds_t count, const struct timespec *span, const sigset_t *mask)
{
  if (!softclock_owns ())
    return real_poll (fds, count, span, mask);
  uint64_t end = SOFTCLOCK_NEVER;
  if (span)
    {
      if (span->tv_sec < 0 || span->tv_nsec < 0 || span->tv_nsec >= (long) SECOND_NS)
        {
          errno = EINVAL;
          return -1;
        }
      end = softclock_peek () + (uint64_t) span->tv_sec * SECOND_NS + (uint64_t) span->tv_nsec;
    }
  return poll_until (fds, count, end, mask);
}

EXPORT int
poll (struct pollfd *fds, nfds_t count, int milliseconds)
{
  const struct timespec span
      = { .tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000l };
  return ppoll (fds, count, milliseconds < 0 ? NULL : &span, NULL);
}

/* What programs that are compiled with checks call in their place.  */
EXPORT int
__poll_chk (struct pollfd *fds, nfds_t count, int milliseconds, size_t bytes)
{
  if (bytes / sizeof *fds < count)
    __builtin_trap ();
  return poll (fds, count, milliseconds);
}

EXPORT int
__ppoll_chk (struct pollfd *fds, nfds_t count, const struct timespec *span, const sigset_t *mask,
             size_t bytes)
{
  if (bytes / sizeof *fds < count)
    __builtin_trap ();
  return ppoll (fds, count, span, mask);
}
