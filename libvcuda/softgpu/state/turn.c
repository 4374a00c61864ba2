/* Which process has the GPU.  */

#include "state/turn.h"

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

unsigned
softgpu_next_with_work (struct softgpu_state *state, unsigned gpu, unsigned after)
{
  const uint64_t *backlogged = state->gpu[gpu].backlogged;
  unsigned first = next_backlogged (backlogged, after), slot = first;
  while (slot != SOFTGPU_MAX_SLOTS && !softgpu_has_work (state, gpu, slot))
    {
      slot = next_backlogged (backlogged, slot);
      if (slot == first)
        return SOFTGPU_MAX_SLOTS;
    }
  return slot;
}

bool
softgpu_is_current (const struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_gpu *device = &state->gpu[gpu];
  return device->current == slot && device->current_generation
         && device->current_generation == state->slot[slot].generation;
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
  if (state->clock != SOFTGPU_UNKIND)
    return true;
  if (state->gpu[gpu].switch_left_ns)
    return false;
  if (softgpu_is_current (state, gpu, slot))
    return true;
  unsigned other = softgpu_next_with_work (state, gpu, slot);
  return other == SOFTGPU_MAX_SLOTS || other == slot;
}

static bool
kernel_goes_on (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  FOR_LANES (lane, head, state, gpu, slot)
    if (softgpu_goes_on (state, gpu, head))
      return true;
  return false;
}

bool
softgpu_take_turn (struct softgpu_state *state, unsigned gpu)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  unsigned slot = device->current;
  if (state->clock == SOFTGPU_MPS || device->switch_left_ns)
    return false;
  bool own = softgpu_is_current (state, gpu, slot) && softgpu_has_work (state, gpu, slot);
  if (own && device->slice_left_ns)
    return false;
  unsigned next = softgpu_next_with_work (state, gpu, slot);
  if (next == SOFTGPU_MAX_SLOTS)
    return false;
  if (own && next == slot)
    {
      device->slice_left_ns = state->slice_ns;
      return true;
    }
  if (own && state->no_preemption && kernel_goes_on (state, gpu, slot))
    return false;
  bool first = !device->current_generation;
  device->current = next;
  device->current_generation = state->slot[next].generation;
  device->slice_left_ns = state->slice_ns;
  device->switch_left_ns = first ? 0 : state->switch_ns;
  return true;
}
