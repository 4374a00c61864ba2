/* Which process has the GPU.  */

#include "engine/turn.h"

/* The first backlogged slot after AFTER, going round; SOFTGPU_MAX_SLOTS when there is none.  */
static unsigned
next_backlogged (const uint64_t *backlogged, unsigned after)
{
  enum
  {
    WORDS = SOFTGPU_MAX_SLOTS / 64
  };
  unsigned first = (after + 1) % SOFTGPU_MAX_SLOTS;
  for (unsigned step = 0; step <= WORDS; step++)
    {
      unsigned word = (first / 64 + step) % WORDS;
      uint64_t bits = backlogged[word];
      if (step == 0)
        bits &= ~0ull << first % 64;
      else if (step == WORDS)
        bits &= ~(~0ull << first % 64);
      if (bits)
        return word * 64 + (unsigned) __builtin_ctzll (bits);
    }
  return SOFTGPU_MAX_SLOTS;
}

bool
softgpu_has_work (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  FOR_LANES (lane, head, state, gpu, slot)
    {
      bool may_begin = head->state == SOFTGPU_RUNNING
                       || (head->state == SOFTGPU_QUEUED && softgpu_unblocked (queue, lane));
      if (may_begin
          && (head->kind == SOFTGPU_KERNEL
              || (head->kind == SOFTGPU_RECORD && state->clock == SOFTGPU_UNKIND)))
        return true;
    }
  return false;
}

static unsigned
next_of (struct softgpu_state *state, unsigned gpu, unsigned after, bool current_too)
{
  const uint64_t *backlogged = state->gpu[gpu].backlogged;
  unsigned first = next_backlogged (backlogged, after), slot = first;
  while (slot != SOFTGPU_MAX_SLOTS
         && (!softgpu_has_work (state, gpu, slot)
             || (!current_too && softgpu_is_current (state, gpu, slot))))
    {
      slot = next_backlogged (backlogged, slot);
      if (slot == first)
        return SOFTGPU_MAX_SLOTS;
    }
  return slot;
}

unsigned
softgpu_next_with_work (struct softgpu_state *state, unsigned gpu, unsigned after)
{
  return next_of (state, gpu, after, true);
}

unsigned
softgpu_next_waiting (struct softgpu_state *state, unsigned gpu)
{
  return next_of (state, gpu, state->gpu[gpu].current, false);
}

bool
softgpu_is_current (const struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_gpu *device = &state->gpu[gpu];
  const struct softgpu_slot *process = &state->slot[slot];
  if (process->mps_server || device->current_server)
    return device->current_server == process->mps_server
           && device->current_server_generation == process->mps_generation;
  return device->current == slot && device->current_generation
         && device->current_generation == process->generation;
}

/* Whether a process has work that does not share its context with SLOT.  */
static bool
others_have_work (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_slot *own = &state->slot[slot];
  FOR_BACKLOGGED (other, state, gpu)
    {
      const struct softgpu_slot *process = &state->slot[other];
      bool together = other == slot
                      || (own->mps_server && own->mps_server == process->mps_server
                          && own->mps_generation == process->mps_generation);
      if (!together && softgpu_has_work (state, gpu, (unsigned) other))
        return true;
    }
  return false;
}

bool
softgpu_has_gpu (const struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  return state->clock == SOFTGPU_MPS
         || (softgpu_is_current (state, gpu, slot) && !state->gpu[gpu].switch_left_ns);
}

bool
softgpu_may_stamp (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  return state->clock != SOFTGPU_UNKIND
         || (!state->gpu[gpu].switch_left_ns
             && (softgpu_is_current (state, gpu, slot) || !others_have_work (state, gpu, slot)));
}

/* Whether the current process, or a client of the current server, has work.  */
static bool
current_has_work (struct softgpu_state *state, unsigned gpu)
{
  FOR_BACKLOGGED (slot, state, gpu)
    if (softgpu_is_current (state, gpu, (unsigned) slot)
        && softgpu_has_work (state, gpu, (unsigned) slot))
      return true;
  return false;
}

static bool
kernel_goes_on (struct softgpu_state *state, unsigned gpu)
{
  FOR_BACKLOGGED (slot, state, gpu)
    {
      if (!softgpu_is_current (state, gpu, (unsigned) slot))
        continue;
      FOR_LANES (lane, head, state, gpu, slot)
        if (softgpu_goes_on (state, gpu, head))
          return true;
    }
  return false;
}

bool
softgpu_take_turn (struct softgpu_state *state, unsigned gpu)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  if (state->clock == SOFTGPU_MPS || device->switch_left_ns)
    return false;
  bool own = current_has_work (state, gpu);
  if (own && device->slice_left_ns)
    return false;
  unsigned next = softgpu_next_waiting (state, gpu);
  if (next == SOFTGPU_MAX_SLOTS)
    {
      if (own)
        device->slice_left_ns = state->slice_ns;
      return own;
    }
  if (own && state->no_preemption && kernel_goes_on (state, gpu))
    return false;
  bool first = !device->current_generation;
  device->current = next;
  device->current_generation = state->slot[next].generation;
  device->current_server = state->slot[next].mps_server;
  device->current_server_generation = state->slot[next].mps_generation;
  device->slice_left_ns = state->slice_ns;
  device->switch_left_ns = first ? 0 : state->switch_ns;
  return true;
}
