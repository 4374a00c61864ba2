/* When a command can end at the earliest.  */

#include "engine/copy_engine.h"
#include "engine/engine.h"
#include "engine/turn.h"

#define DEEPEST 4 /* streams that wait for each other, one behind the other */

static uint64_t
larger (uint64_t one, uint64_t other)
{
  return one > other ? one : other;
}

/* How long SLOT keeps the GPU at least, were its slice endless: the longest row of kernels, one
   after the other, that nothing of its own can hold up.  */
static uint64_t
least_turn (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  uint64_t longest = 0, legacy = queue->lane[SOFTGPU_LEGACY_LANE].first;
  FOR_LANES (lane, head, state, gpu, slot)
    {
      if (!softgpu_unblocked (queue, lane))
        continue;
      uint64_t sum = 0;
      const struct softgpu_command *at = head;
      while ((at->kind == SOFTGPU_KERNEL || at->kind == SOFTGPU_RECORD) && sum < state->slice_ns)
        {
          sum += at->kind == SOFTGPU_KERNEL ? at->left_ns : 0;
          bool barrier
              = lane == SOFTGPU_LEGACY_LANE ? queue->lanes & SOFTGPU_BLOCKING_LANES & ~1u : legacy;
          if (!at->next || barrier)
            break;
          at = softgpu_command_at (state, gpu, slot, at->next - 1);
        }
      longest = larger (longest, sum);
    }
  return longest;
}

/* How many slots the turn passes from the current process to SLOT.  */
static unsigned
distance (const struct softgpu_gpu *device, unsigned slot)
{
  return (slot + SOFTGPU_MAX_SLOTS - device->current) % SOFTGPU_MAX_SLOTS;
}

/* How long other processes keep the GPU from SLOT at least, without the switch to it.  */
static uint64_t
turns_of_others (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_gpu *device = &state->gpu[gpu];
  uint64_t sum = device->switch_left_ns, left = device->slice_left_ns, switch_ns = 0;
  unsigned other = device->current;
  /* Clients of MPS take turns in no order of their slots.  */
  FOR_BACKLOGGED (client, state, gpu)
    if (state->slot[client].mps_server)
      return sum;
  for (unsigned reached = 0; other != SOFTGPU_MAX_SLOTS && distance (device, other) >= reached
                             && distance (device, other) < distance (device, slot);
       other = softgpu_next_with_work (state, gpu, other))
    {
      uint64_t turn = least_turn (state, gpu, other);
      reached = distance (device, other) + 1;
      if (turn)
        sum += switch_ns + (turn < left ? turn : left);
      left = state->slice_ns;
      switch_ns = state->switch_ns;
    }
  return sum;
}

struct search
{
  struct softgpu_state *state;
  unsigned gpu, slot;
  uint64_t turn;  /* until a kernel can begin */
  uint64_t stamp; /* until a record can be stamped: others may have no more work then */
};

static uint64_t bound_of (const struct search *search, uint64_t number, unsigned depth);

/* The time of LANE's commands below BELOW, one after the other. Of stream waits only the head's is
   followed: two streams may wait for each other hundreds of times.  */
static uint64_t
row (const struct search *search, unsigned lane, uint64_t below, unsigned depth)
{
  uint64_t sum = 0, first;
  first = softgpu_queue (search->state, search->gpu, search->slot)->lane[lane].first;
  for (uint64_t at = first; at && at <= below;)
    {
      const struct softgpu_command *command
          = softgpu_command_at (search->state, search->gpu, search->slot, at - 1);
      if (command->kind == SOFTGPU_KERNEL)
        sum = larger (sum, search->turn) + command->left_ns;
      else if (command->kind == SOFTGPU_RECORD && search->state->clock == SOFTGPU_UNKIND)
        sum = larger (sum, search->stamp);
      else if (softgpu_over_bus (command))
        sum += command->left_ns;
      else if (at == first && command->kind == SOFTGPU_STREAM_WAIT && command->after)
        sum = larger (sum, bound_of (search, command->after - 1, depth + 1));
      at = command->next;
    }
  return sum;
}

/* The longest row of the lanes in LANES.  */
static uint64_t
longest_row (const struct search *search, uint32_t lanes, uint64_t below, unsigned depth)
{
  uint64_t longest = 0;
  lanes &= softgpu_queue (search->state, search->gpu, search->slot)->lanes;
  for (; lanes; lanes &= lanes - 1)
    longest = larger (longest, row (search, (unsigned) __builtin_ctz (lanes), below, depth));
  return longest;
}

static uint64_t
bound_of (const struct search *search, uint64_t number, unsigned depth)
{
  if (depth > DEEPEST || softgpu_command_done (search->state, search->gpu, search->slot, number))
    return 0;
  unsigned lane = softgpu_command_at (search->state, search->gpu, search->slot, number)->lane;
  uint64_t before = 0;
  if (lane == SOFTGPU_LEGACY_LANE)
    before = longest_row (search, SOFTGPU_BLOCKING_LANES & ~1u, number, depth);
  else if (SOFTGPU_BLOCKING_LANES >> lane & 1)
    before = row (search, SOFTGPU_LEGACY_LANE, number, depth);
  return larger (before, row (search, lane, number + 1, depth));
}

/* How long the kernels below BELOW take if they fill the GPU.  */
static uint64_t
filled (const struct search *search, uint64_t below)
{
  unsigned __int128 area = 0;
  const struct softgpu_slot_gpu *queue = softgpu_queue (search->state, search->gpu, search->slot);
  for (uint64_t at = queue->tail; at < below; at++)
    {
      const struct softgpu_command *command
          = softgpu_command_at (search->state, search->gpu, search->slot, at);
      if (command->kind == SOFTGPU_KERNEL && command->state != SOFTGPU_DONE)
        area += (unsigned __int128) command->left_ns * command->width;
    }
  return area ? search->turn + (uint64_t) (area / SOFTGPU_WHOLE) : 0;
}

uint64_t
softgpu_earliest_end (struct softgpu_state *state, unsigned gpu, unsigned slot,
                      struct softgpu_target target)
{
  struct search search = { .state = state, .gpu = gpu, .slot = slot };
  const struct softgpu_gpu *device = &state->gpu[gpu];
  if (softgpu_is_current (state, gpu, slot))
    search.turn = search.stamp = device->switch_left_ns;
  else if (state->clock != SOFTGPU_MPS && device->current_generation)
    {
      search.stamp = turns_of_others (state, gpu, slot);
      search.turn = search.stamp + state->switch_ns;
    }
  uint64_t least;
  if (target.scope == SOFTGPU_ONE)
    least = bound_of (&search, target.below - 1, 0);
  else if (target.scope == SOFTGPU_BLOCKING)
    least = longest_row (&search, SOFTGPU_BLOCKING_LANES, target.below, 0);
  else
    least = larger (longest_row (&search, ~0u, target.below, 0), filled (&search, target.below));
  /* Nothing ends before the GPU's next event.  */
  least = larger (least, softgpu_next_event (state, gpu));
  uint64_t clock = state->gpu[gpu].clock_ns;
  return least < UINT64_MAX - clock ? clock + least : UINT64_MAX;
}
