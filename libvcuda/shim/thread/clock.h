/* Time and sleep, on CLOCK_MONOTONIC.  */

#pragma once

#include <stdint.h>
#include <time.h>

static inline uint64_t
vcuda_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (uint64_t) now.tv_sec * 1000000000ull + (uint64_t) now.tv_nsec;
}

/* Returns early on a signal, so each caller checks its condition again. Leaves errno alone.  */
static inline void
vcuda_sleep_ns (uint64_t ns)
{
  struct timespec span
      = { .tv_sec = (time_t) (ns / 1000000000ull), .tv_nsec = (long) (ns % 1000000000ull) };
  clock_nanosleep (CLOCK_MONOTONIC, 0, &span, NULL);
}

/* Between two reads of a word that another processor is about to write.  */
static inline void
vcuda_pause (void)
{
#ifdef __aarch64__
  __asm__ volatile ("yield");
#else
  __builtin_ia32_pause ();
#endif
}
