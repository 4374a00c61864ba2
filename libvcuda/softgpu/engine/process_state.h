/* The checkpoint of a process, as its slot says.

   The slot holds the last step, and when its copy ends. What follows from the end of a copy is
   never written: it is computed from the time. So the copy of a caller that was killed ends as any
   other, and no byte of account moves: what the process holds counts while it is on the GPU.

   A copy to or from custom storage is its caller's: it lasts until the caller completes it. If the
   caller ends before, the reaper of its slot writes what becomes of the process.  */

#pragma once

#include <stdbool.h>

#include "state/state.h"

enum softgpu_process_state softgpu_process_state (const struct softgpu_slot *slot);

/* Whether its memory is being copied, by the driver.  */
bool softgpu_copies (const struct softgpu_slot *slot);

/* Whether what the process holds lies on the host.  */
bool softgpu_off_gpu (const struct softgpu_slot *slot);

/* Writes a step. With the lock held.  */
void softgpu_set_process_state (struct softgpu_slot *slot, enum softgpu_process_state state);

/* Begins CHECKPOINTING or RESTORING, a copy of BYTES at RATE bytes a second; returns when it ends.
   RATE 0: at once. With the lock held.  */
uint64_t softgpu_begin_copy (struct softgpu_slot *slot, enum softgpu_process_state state,
                             uint64_t bytes, uint64_t rate);

/* Begins a copy by the process in the slot COPIER, which softgpu_end_custom_copy ends. With the
   lock held.  */
void softgpu_begin_custom_copy (struct softgpu_slot *slot, enum softgpu_process_state state,
                                unsigned copier);
void softgpu_end_custom_copy (struct softgpu_slot *slot, enum softgpu_process_state state);
