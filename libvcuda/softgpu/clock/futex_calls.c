/* `syscall`, in place of the C library's: in a participating thread a futex wait is a sleep in
   virtual time, which a participant's wake of the same word ends. A wake ends every wait for its
   word, and wakes the kernel's waiters too.  */

#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "clock/owner.h"
#include "clock/raw_call.h"

bool softclock_lacks_waitv;

static long
pass_through (long number, const long given[6])
{
  return softclock_answer (
      softclock_raw_call (number, given[0], given[1], given[2], given[3], given[4], given[5]));
}

/* The virtual moment of the timeout SPAN, which counts from FROM on.  */
static uint64_t
moment (const struct timespec *span, uint64_t from)
{
  if (!span || (uint64_t) span->tv_sec > UINT64_MAX / SECOND_NS / 2)
    return SOFTCLOCK_NEVER;
  return from + softclock_nanoseconds (span);
}

static uint32_t
load (uintptr_t word)
{
  return __atomic_load_n ((const uint32_t *) word, __ATOMIC_SEQ_CST);
}

static long
wait (const long given[6], bool until)
{
  uintptr_t word = (uintptr_t) given[0];
  const struct timespec *span = (const struct timespec *) given[3];
  if (load (word) != (uint32_t) given[2])
    return softclock_answer (-EAGAIN);
  if (span && !softclock_is_span (span))
    return softclock_answer (-EINVAL);
  uint64_t from = until ? 0 : softclock_peek ();
  uint64_t known = softclock_word (word);
  return softclock_wait_for_wake (moment (span, from), &known, 1) ? 0
                                                                  : softclock_answer (-ETIMEDOUT);
}

/* Returns the number of a word that has changed, since which one was woken is not known.  */
static long
wait_for_several (const long given[6])
{
  const struct futex_waitv *waiters = (const struct futex_waitv *) given[0];
  unsigned count = (unsigned) given[1];
  const struct timespec *span = (const struct timespec *) given[3];
  for (unsigned i = 0; i < count; i++)
    if (load ((uintptr_t) waiters[i].uaddr) != (uint32_t) waiters[i].val)
      return softclock_answer (-EAGAIN);
  if (span && !softclock_is_span (span))
    return softclock_answer (-EINVAL);
  uint64_t words[FUTEX_WAITV_MAX];
  for (unsigned i = 0; i < count; i++)
    words[i] = softclock_word ((uintptr_t) waiters[i].uaddr);
  if (!softclock_wait_for_wake (moment (span, 0), words, count))
    return softclock_answer (-ETIMEDOUT);
  for (unsigned i = 0; i < count; i++)
    if (load ((uintptr_t) waiters[i].uaddr) != (uint32_t) waiters[i].val)
      return i;
  return 0;
}

static long
wake (long number, const long given[6])
{
  long real = pass_through (number, given);
  return real < 0 ? real : real + softclock_wake_waiters (softclock_word ((uintptr_t) given[0]));
}

EXPORT long
syscall (long number, ...)
{
  long given[6];
  va_list list;
  va_start (list, number);
  for (int i = 0; i < 6; i++)
    given[i] = va_arg (list, long);
  va_end (list);
  if ((number != SYS_futex && number != SYS_futex_waitv) || !softclock_owns ())
    return pass_through (number, given);
  if (number == SYS_futex_waitv && softclock_lacks_waitv)
    return softclock_answer (-ENOSYS);
  if (number == SYS_futex_waitv)
    return given[4] == CLOCK_MONOTONIC && given[1] > 0 && given[1] <= FUTEX_WAITV_MAX
               ? wait_for_several (given)
               : pass_through (number, given);
  bool of_date = given[1] & FUTEX_CLOCK_REALTIME;
  switch (given[1] & FUTEX_CMD_MASK)
    {
    case FUTEX_WAIT:
      return wait (given, false);
    case FUTEX_WAIT_BITSET:
      return of_date && given[3] ? pass_through (number, given) : wait (given, true);
    case FUTEX_WAKE:
    case FUTEX_WAKE_BITSET:
      return wake (number, given);
    default:
      return pass_through (number, given);
    }
}
