/* `poll`, `ppoll` and `epoll_wait`, in place of the C library's: a participating thread that finds
   no descriptor ready sleeps in virtual time, and looks again each millisecond.  */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>

#include "clock/owner.h"
#include "clock/raw_call.h"

#define EXPORT __attribute__ ((visibility ("default")))
#define SECOND_NS 1000000000ull
#define STEP_NS 1000000ull

/* A call that waits for descriptors; a negative timeout is endless.  */
struct call
{
  long number; /* SYS_ppoll or SYS_epoll_pwait */
  long of[3]; /* descriptors and their number; or epoll's descriptor, its events and their number */
  const sigset_t *mask;
};

static int
really (const struct call *call, int64_t timeout_ns)
{
  struct timespec span
      = { .tv_sec = timeout_ns / (int64_t) SECOND_NS, .tv_nsec = timeout_ns % (int64_t) SECOND_NS };
  long answer;
  if (call->number == SYS_ppoll)
    answer
        = softclock_raw_call (SYS_ppoll, call->of[0], call->of[1],
                              timeout_ns < 0 ? 0 : (long) &span, (long) call->mask, _NSIG / 8, 0);
  else
    answer = softclock_raw_call (SYS_epoll_pwait, call->of[0], call->of[1], call->of[2],
                                 timeout_ns < 0 ? -1 : timeout_ns / 1000000, (long) call->mask,
                                 _NSIG / 8);
  if (answer >= 0)
    return (int) answer;
  errno = (int) -answer;
  return -1;
}

static int
wait_in_virtual_time (const struct call *call, int64_t timeout_ns)
{
  if (!softclock_owns ())
    return really (call, timeout_ns);
  uint64_t end = timeout_ns < 0 ? SOFTCLOCK_NEVER : softclock_peek () + (uint64_t) timeout_ns;
  for (;;)
    {
      int ready = really (call, 0);
      uint64_t now = softclock_peek ();
      if (ready || now >= end)
        return ready;
      softclock_sleep_until (end - now < STEP_NS ? end : now + STEP_NS);
    }
}

EXPORT int
ppoll (struct pollfd *fds, nfds_t count, const struct timespec *span, const sigset_t *mask)
{
  const struct call call = { SYS_ppoll, { (long) fds, (long) count }, mask };
  if (!span)
    return wait_in_virtual_time (&call, -1);
  if (span->tv_sec < 0 || span->tv_nsec < 0 || span->tv_nsec >= (long) SECOND_NS)
    {
      errno = EINVAL;
      return -1;
    }
  int64_t seconds = span->tv_sec < 1000000000 ? span->tv_sec : 1000000000;
  return wait_in_virtual_time (&call, seconds * (int64_t) SECOND_NS + span->tv_nsec);
}

EXPORT int
poll (struct pollfd *fds, nfds_t count, int milliseconds)
{
  const struct call call = { SYS_ppoll, { (long) fds, (long) count }, NULL };
  return wait_in_virtual_time (&call, milliseconds < 0 ? -1 : milliseconds * 1000000ll);
}

EXPORT int
epoll_pwait (int epoll, struct epoll_event *events, int most, int milliseconds,
             const sigset_t *mask)
{
  const struct call call = { SYS_epoll_pwait, { epoll, (long) events, most }, mask };
  return wait_in_virtual_time (&call, milliseconds < 0 ? -1 : milliseconds * 1000000ll);
}

EXPORT int
epoll_wait (int epoll, struct epoll_event *events, int most, int milliseconds)
{
  return epoll_pwait (epoll, events, most, milliseconds, NULL);
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
