/* What the replaced calls share: system calls that do not pass the replaced `syscall`, their
   answers, and spans of time.  */

#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define EXPORT __attribute__ ((visibility ("default")))
#define SECOND_NS 1000000000ull

/* The kernel's answer: an error number is negative. Leaves errno alone. For x86-64 only, as all of
   the software GPU.  */
static inline long
softclock_raw_call (long number, long a, long b, long c, long d, long e, long f)
{
  long answer;
  register long fourth __asm__ ("r10") = d;
  register long fifth __asm__ ("r8") = e;
  register long sixth __asm__ ("r9") = f;
  __asm__ volatile ("syscall"
                    : "=a"(answer)
                    : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                    : "rcx", "r11", "memory");
  return answer;
}

#define SOFTCLOCK_RAW(number, a, b, c, d)                                                          \
  softclock_raw_call ((number), (long) (a), (long) (b), (long) (c), (long) (d), 0, 0)

/* The kernel's answer as the C library gives it: -1 and errno for an error.  */
static inline long
softclock_answer (long answer)
{
  if (answer >= 0 || answer <= -4096)
    return answer;
  errno = (int) -answer;
  return -1;
}

static inline bool
softclock_is_span (const struct timespec *span)
{
  return span->tv_sec >= 0 && span->tv_nsec >= 0 && (uint64_t) span->tv_nsec < SECOND_NS;
}

static inline uint64_t
softclock_nanoseconds (const struct timespec *span)
{
  return (uint64_t) span->tv_sec * SECOND_NS + (uint64_t) span->tv_nsec;
}
