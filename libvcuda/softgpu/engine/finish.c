/* Ends the commands that are due.  */

#include "engine/finish.h"

#include "engine/turn.h"

static bool
over (struct softgpu_state *state, unsigned gpu, unsigned slot, unsigned lane,
      const struct softgpu_command *head)
{
  const struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  switch (head->kind)
    {
    case SOFTGPU_RECORD:
      return softgpu_unblocked (queue, lane) && softgpu_may_stamp (state, gpu, slot);
    case SOFTGPU_STREAM_WAIT:
      return softgpu_unblocked (queue, lane)
             && (!head->after || softgpu_command_done (state, gpu, slot, head->after - 1));
    default:
      return head->state == SOFTGPU_RUNNING && !head->left_ns;
    }
}

static void
end (struct softgpu_state *state, unsigned gpu, unsigned slot, struct softgpu_command *head)
{
  struct softgpu_slot_gpu *queue = softgpu_queue (state, gpu, slot);
  if (head->kind == SOFTGPU_RECORD)
    {
      head->stamp_ns = state->gpu[gpu].clock_ns;
      head->waited_ns = queue->waited_ns;
    }
  queue->kernels_finished += head->count;
  head->state = SOFTGPU_DONE;
}

bool
softgpu_finish (struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  bool any = false;
  for (uint32_t left = softgpu_queue (state, gpu, slot)->lanes; left; left &= left - 1)
    {
      unsigned lane = (unsigned) __builtin_ctz (left);
      for (struct softgpu_command *head;
           (head = softgpu_lane_head (state, gpu, slot, lane)) != NULL; any = true)
        {
          if (head->state != SOFTGPU_DONE)
            {
              if (!over (state, gpu, slot, lane, head))
                break;
              end (state, gpu, slot, head);
            }
          softgpu_drop_head (state, gpu, slot, lane);
        }
    }
  if (any)
    softgpu_move_tail (state, gpu, slot);
  return any;
}
