/* What a process waits for: commands of its queue.  */

#include "state/target.h"

bool
softgpu_reached (struct softgpu_state *state, unsigned gpu, unsigned slot,
                 struct softgpu_target target)
{
  const struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  if (queue->tail >= target.below)
    return true;
  if (target.scope == SOFTGPU_ONE)
    return softgpu_command_done (state, gpu, slot, target.below - 1);
  if (target.scope == SOFTGPU_ALL)
    return false;
  for (uint32_t left = queue->lanes & SOFTGPU_BLOCKING_LANES; left; left &= left - 1)
    {
      uint64_t first = queue->lane[__builtin_ctz (left)].first;
      if (first && first <= target.below)
        return false;
    }
  return true;
}
