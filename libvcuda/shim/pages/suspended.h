/* Whether the host has suspended this container, and the wait for its end. The protocol is in
   vcuda_abi.h.  */

#pragma once

#include <stdbool.h>

#include "pages/pages.h"

/* Whether each call has to read `suspended`.  */
static inline bool
vcuda_calls_ask (void)
{
  return __atomic_load_n (&vcuda_pages.limits->calls_ask, __ATOMIC_RELAXED) != 0;
}

static inline bool
vcuda_is_suspended (void)
{
  return __atomic_load_n (&vcuda_pages.limits->suspended, __ATOMIC_SEQ_CST) != VCUDA_AWAKE;
}

/* Changes whenever a suspension ends.  */
static inline uint32_t
vcuda_suspensions (void)
{
  return __atomic_load_n (&vcuda_pages.limits->suspensions, __ATOMIC_ACQUIRE);
}

/* Whether the container was suspended at some moment since vcuda_suspensions was BEFORE. The driver
   goes on a moment before the host counts the end.  */
static inline bool
vcuda_was_suspended (uint32_t before)
{
  return vcuda_is_suspended () || vcuda_suspensions () != before;
}

/* Returns when the container is awake; asks the host to resume it if it sleeps until a call comes.
   Signal handlers run meanwhile. Leaves errno alone. Calls that need the GPU from the start begin
   with it, in every container.  */
void vcuda_wait_until_awake (void);
