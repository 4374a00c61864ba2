/* When a command can end at the earliest: waiters sleep until then.  */

#pragma once

#include "state/queue.h"

/* A time that is never later than the moment at which TARGET is reached, unless a process dies. The
   GPU has been advanced, and TARGET is not reached.  */
uint64_t softgpu_earliest_end (struct softgpu_state *state, unsigned gpu, unsigned slot,
                               struct softgpu_target target);
