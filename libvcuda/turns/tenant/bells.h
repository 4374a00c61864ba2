/* Sleeps until a container rings, or a moment has come.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BELLS 128 /* of FUTEX_WAITV_MAX */

/* The first word is no container's.  */
struct bells
{
  int count;
  bool sole; /* the GPU has one container */
  const uint32_t *word[BELLS];
  uint32_t value[BELLS];
};

/* Returns at the latest when CLOCK_MONOTONIC is UNTIL_NS (UINT64_MAX: never), and at once where a
   word no longer has its value. May return early. The index of the word that woke the caller; -1:
   none is known.  */
int bells_wait (const struct bells *bells, uint64_t until_ns);

void bells_wake (const uint32_t *word);

uint64_t bells_now (void);
