/* Which process has the GPU: round robin over those with work, in time slices.

   Work is a kernel that could run now, or a record that waits for its moment. A process that waits
   for its copies only has none, and is skipped. The clients of an MPS server have
   their turns together; by the clock `mps` there are no turns.  */

#pragma once

#include "state/queue.h"

bool softgpu_has_work (struct softgpu_state *state, unsigned gpu, unsigned slot);

/* The first slot after AFTER that has work, going round to AFTER itself; SOFTGPU_MAX_SLOTS: none
   has.  */
unsigned softgpu_next_with_work (struct softgpu_state *state, unsigned gpu, unsigned after);

/* The first slot after the current one that has work and waits for its turn; SOFTGPU_MAX_SLOTS:
   there is none.  */
unsigned softgpu_next_waiting (struct softgpu_state *state, unsigned gpu);

/* Whether the process in SLOT had the turn last, by itself or with its MPS server's clients.  */
bool softgpu_is_current (const struct softgpu_state *state, unsigned gpu, unsigned slot);

/* Whether kernels of SLOT may run.  */
bool softgpu_has_gpu (const struct softgpu_state *state, unsigned gpu, unsigned slot);

/* Whether a record that SLOT's stream has reached is stamped now.  */
bool softgpu_may_stamp (struct softgpu_state *state, unsigned gpu, unsigned slot);

/* Whether the current process's slice is over, and its kernels run to their ends.  */
static inline bool
softgpu_draining (const struct softgpu_state *state, unsigned gpu)
{
  return state->clock != SOFTGPU_MPS && !state->gpu[gpu].slice_left_ns;
}

/* Whether the started kernel HEAD of the process that has the GPU goes on.  */
static inline bool
softgpu_goes_on (const struct softgpu_state *state, unsigned gpu,
                 const struct softgpu_command *head)
{
  return head->kind == SOFTGPU_KERNEL && head->state == SOFTGPU_RUNNING
         && !(softgpu_draining (state, gpu) && head->piece_ns
              && head->left_ns % head->piece_ns == 0);
}

/* Passes the turn on where that is due; false: nothing changed.  */
bool softgpu_take_turn (struct softgpu_state *state, unsigned gpu);
