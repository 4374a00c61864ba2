/* Sleeps on the futexes of many containers at once (futex_waitv, Linux 5.16). An older kernel, or
   more containers than one call takes, means a poll each millisecond.  */

#include "tenant/bells.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#  define SYS_futex_waitv 449
#endif
/* Source: linux/futex.h, which musl's compiler does not find.  */
#define FUTEX_WAKE 1
#define SIZE_U32 2
#define POLL_NS 1000000ull
/* Of a GPU's only container.  */
#define SOLE_POLL_NS 20000000ull

/* struct futex_waitv.  */
struct waited_word
{
  uint64_t value, address;
  uint32_t flags, reserved;
};

static struct timespec
moment_of (uint64_t ns)
{
  return (struct timespec){ .tv_sec = (time_t) (ns / 1000000000ull),
                            .tv_nsec = (long) (ns % 1000000000ull) };
}

uint64_t
bells_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (uint64_t) now.tv_sec * 1000000000ull + (uint64_t) now.tv_nsec;
}

static void
poll_instead (bool sole, uint64_t until_ns)
{
  uint64_t soon = bells_now () + (sole ? SOLE_POLL_NS : POLL_NS);
  struct timespec moment = moment_of (soon < until_ns ? soon : until_ns);
  clock_nanosleep (CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
}

int
bells_wait (const struct bells *bells, uint64_t until_ns)
{
  static bool missing;
  struct waited_word words[BELLS];
  struct timespec moment = moment_of (until_ns);
  for (int i = 0; i < bells->count && i < BELLS; i++)
    words[i] = (struct waited_word){ bells->value[i], (uintptr_t) bells->word[i], SIZE_U32, 0 };
  if (!missing && bells->count <= BELLS)
    {
      long woken = syscall (SYS_futex_waitv, words, bells->count, 0,
                            until_ns == UINT64_MAX ? NULL : &moment, CLOCK_MONOTONIC);
      if (woken >= 0)
        return (int) woken;
      if (errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR)
        return -1;
      /* EFAULT: a page was cut; its container is found and left out at the next reading.  */
      missing = errno == ENOSYS;
    }
  poll_instead (bells->sole, until_ns);
  return -1;
}

void
bells_wake (const uint32_t *word)
{
  syscall (SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
