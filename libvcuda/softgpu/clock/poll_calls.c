/* `poll` and `ppoll`, in place of the C library's: a participating thread that finds no
   descriptor ready sleeps in virtual time, and polls again each millisecond.  */

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>

#include "clock/owner.h"
#include "clock/raw_call.h"

#define STEP_NS 1000000ull

/* A negative timeout is endless.  */
static int
poll_in_real_time (struct pollfd *fds, nfds_t count, int64_t timeout_ns, const sigset_t *mask)
{
  struct timespec span
      = { .tv_sec = timeout_ns / (int64_t) SECOND_NS, .tv_nsec = timeout_ns % (int64_t) SECOND_NS };
  return (int) softclock_answer (softclock_raw_call (SYS_ppoll, (long) fds, (long) count,
                                                     timeout_ns < 0 ? 0 : (long) &span, (long) mask,
                                                     _NSIG / 8, 0));
}

static int
poll_in_virtual_time (struct pollfd *fds, nfds_t count, int64_t timeout_ns, const sigset_t *mask)
{
  if (!softclock_owns ())
    return poll_in_real_time (fds, count, timeout_ns, mask);
  uint64_t end = timeout_ns < 0 ? SOFTCLOCK_NEVER : softclock_peek () + (uint64_t) timeout_ns;
  for (;;)
    {
      int ready = poll_in_real_time (fds, count, 0, mask);
      uint64_t now = softclock_peek ();
      if (ready || now >= end)
        return ready;
      softclock_sleep_until (end - now < STEP_NS ? end : now + STEP_NS);
    }
}

EXPORT int
ppoll (struct pollfd *fds, nfds_t count, const struct timespec *span, const sigset_t *mask)
{
  if (!span)
    return poll_in_virtual_time (fds, count, -1, mask);
  if (!softclock_is_span (span))
    return (int) softclock_answer (-EINVAL);
  int64_t seconds = span->tv_sec < 1000000000 ? span->tv_sec : 1000000000;
  return poll_in_virtual_time (fds, count, seconds * (int64_t) SECOND_NS + span->tv_nsec, mask);
}

EXPORT int
poll (struct pollfd *fds, nfds_t count, int milliseconds)
{
  return poll_in_virtual_time (fds, count, milliseconds < 0 ? -1 : milliseconds * 1000000ll, NULL);
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
