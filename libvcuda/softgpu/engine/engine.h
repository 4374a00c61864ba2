/* The GPU's time.

   Nothing runs in the background. What the GPU did is computed afterwards, by the next process that
   asks, from one event to the next: a kernel's or a copy's end, a slice's end, a switch's end. The
   outcome depends on when commands were submitted, never on when a thread woke. So times are exact
   on a slow machine, and a killed process blocks no other.

   Commands of one lane run in order. Kernels at the heads of a process's lanes run together while
   their widths sum to at most the whole GPU, and begin in the order of submission. Between
   processes see turn.h.  */

#pragma once

#include "state/queue.h"

/* Decides what the GPU did until NOW. With the shared lock held.  */
void softgpu_advance (struct softgpu_state *state, unsigned gpu, uint64_t now);

/* Nanoseconds from the GPU's clock on in which nothing begins or ends, unless a command is
   submitted; UINT64_MAX: nothing will. The GPU has been advanced.  */
uint64_t softgpu_next_event (struct softgpu_state *state, unsigned gpu);

/* A time that is never later than the moment at which TARGET is reached, unless a process dies:
   waiters sleep until then. The GPU has been advanced, and TARGET is not reached.  */
uint64_t softgpu_earliest_end (struct softgpu_state *state, unsigned gpu, unsigned slot,
                               struct softgpu_target target);
