/* The state of a process's checkpoint.  */

#include "engine/process_state.h"

#include "engine/device_time.h"

enum softgpu_process_state
softgpu_process_state (const struct softgpu_slot *slot)
{
  uint32_t state = slot->checkpoint;
  if (slot->copier)
    return (enum softgpu_process_state) state;
  if (state == SOFTGPU_PROCESS_CHECKPOINTING && softgpu_now () >= slot->copied_ns)
    return SOFTGPU_PROCESS_CHECKPOINTED;
  if (state == SOFTGPU_PROCESS_RESTORING && softgpu_now () >= slot->copied_ns)
    return SOFTGPU_PROCESS_LOCKED;
  return (enum softgpu_process_state) state;
}

bool
softgpu_copies (const struct softgpu_slot *slot)
{
  enum softgpu_process_state state = softgpu_process_state (slot);
  return !slot->copier
         && (state == SOFTGPU_PROCESS_CHECKPOINTING || state == SOFTGPU_PROCESS_RESTORING);
}

bool
softgpu_off_gpu (const struct softgpu_slot *slot)
{
  return slot->checkpoint != SOFTGPU_PROCESS_RUNNING
         && softgpu_process_state (slot) == SOFTGPU_PROCESS_CHECKPOINTED;
}

/* The attention word is set before the lock is, and cleared after it: a caller that is killed in
   between costs the process a look, and never lets a locked one run.  */
void
softgpu_set_process_state (struct softgpu_slot *slot, enum softgpu_process_state state)
{
  if (state != SOFTGPU_PROCESS_RUNNING)
    slot->attention |= SOFTGPU_CHECKPOINT;
  slot->checkpoint = state;
  if (state == SOFTGPU_PROCESS_RUNNING)
    slot->attention &= ~(uint32_t) SOFTGPU_CHECKPOINT;
}

uint64_t
softgpu_begin_copy (struct softgpu_slot *slot, enum softgpu_process_state state, uint64_t bytes,
                    uint64_t rate)
{
  uint64_t end = softgpu_now ();
  if (rate)
    end += (uint64_t) ((unsigned __int128) bytes * 1000000000u / rate);
  /* The end of the last copy must not be read as this one's, nor this one's as the last.  */
  softgpu_set_process_state (slot, softgpu_process_state (slot));
  slot->copied_ns = end;
  slot->copier = 0;
  softgpu_set_process_state (slot, state);
  return end;
}

/* The copier is written first: without it, a state of a copy would be that of a driver's.  */
void
softgpu_begin_custom_copy (struct softgpu_slot *slot, enum softgpu_process_state state,
                           unsigned copier)
{
  softgpu_set_process_state (slot, softgpu_process_state (slot));
  slot->copier = copier + 1;
  softgpu_set_process_state (slot, state);
}

void
softgpu_end_custom_copy (struct softgpu_slot *slot, enum softgpu_process_state state)
{
  softgpu_set_process_state (slot, state);
  slot->copier = 0;
}
