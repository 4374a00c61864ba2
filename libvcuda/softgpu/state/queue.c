/* A process's commands on one GPU.  */

#include "state/queue.h"

uint64_t
softgpu_append (struct softgpu_state *state, unsigned gpu, unsigned slot,
                const struct softgpu_command *command)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  struct softgpu_lane *lane = &queue->lane[command->lane];
  uint64_t number = queue->head;
  struct softgpu_command *entry = softgpu_command_at (state, gpu, slot, number);
  *entry = *command;
  entry->state = SOFTGPU_QUEUED;
  entry->next = 0;
  entry->order = device->submissions++;
  queue->head++;
  if (lane->first)
    softgpu_command_at (state, gpu, slot, lane->last - 1)->next = number + 1;
  else
    lane->first = number + 1;
  lane->last = number + 1;
  queue->lanes |= 1u << command->lane;
  queue->kernels_submitted += command->count;
  device->backlogged[slot / 64] |= 1ull << slot % 64;
  return number;
}

void
softgpu_touch_queue (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  for (unsigned number = 0; number < SOFTGPU_COMMANDS;
       number += 4096 / sizeof (struct softgpu_command))
    {
      volatile uint8_t *kind = &softgpu_command_at (state, gpu, slot, number)->kind;
      *kind = *kind;
    }
}

bool
softgpu_command_done (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t number)
{
  return number < softgpu_queue (state, gpu, slot)->tail
         || softgpu_command_at (state, gpu, slot, number)->state == SOFTGPU_DONE;
}

/* Whether the blocking lanes have an unfinished command before END, a command's number + 1.  */
static bool
any_blocking (const struct softgpu_slot_gpu *queue, uint64_t end)
{
  for (uint32_t left = queue->lanes & SOFTGPU_BLOCKING_LANES; left; left &= left - 1)
    {
      uint64_t first = queue->lane[__builtin_ctz (left)].first;
      if (first && first < end)
        return true;
    }
  return false;
}

bool
softgpu_reached (struct softgpu_state *state, unsigned gpu, unsigned slot,
                 struct softgpu_target target)
{
  const struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  if (queue->tail >= target.below)
    return true;
  if (target.scope == SOFTGPU_ONE)
    return softgpu_command_done (state, gpu, slot, target.below - 1);
  return target.scope == SOFTGPU_BLOCKING && !any_blocking (queue, target.below + 1);
}

bool
softgpu_unblocked (const struct softgpu_slot_gpu *queue, unsigned lane)
{
  uint64_t own = queue->lane[lane].first;
  if (!(SOFTGPU_BLOCKING_LANES >> lane & 1))
    return true;
  if (lane != SOFTGPU_LEGACY_LANE)
    {
      uint64_t legacy = queue->lane[SOFTGPU_LEGACY_LANE].first;
      return !legacy || legacy > own;
    }
  return !any_blocking (queue, own);
}

void
softgpu_drop_head (struct softgpu_state *state, unsigned gpu, unsigned slot, unsigned lane)
{
  struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  queue->lane[lane].first = softgpu_lane_head (state, gpu, slot, lane)->next;
  if (!queue->lane[lane].first)
    queue->lanes &= ~(1u << lane);
}

void
softgpu_move_tail (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  while (queue->tail < queue->head
         && softgpu_command_at (state, gpu, slot, queue->tail)->state == SOFTGPU_DONE)
    queue->tail++;
  if (!queue->lanes)
    state->gpu[gpu].backlogged[slot / 64] &= ~(1ull << slot % 64);
}

void
softgpu_drop_all (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  queue->lanes = 0;
  for (unsigned lane = 0; lane < SOFTGPU_LANES; lane++)
    queue->lane[lane] = (struct softgpu_lane){ 0 };
  queue->tail = queue->head;
  state->gpu[gpu].backlogged[slot / 64] &= ~(1ull << slot % 64);
}
