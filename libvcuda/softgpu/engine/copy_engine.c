/* The copy engines.  */

#include "engine/copy_engine.h"

static bool
earlier (const struct softgpu_command *one, const struct softgpu_command *other)
{
  return one->ready_ns != other->ready_ns ? one->ready_ns < other->ready_ns
                                          : one->order < other->order;
}

static bool
start_copy (struct softgpu_state *state, unsigned gpu, enum softgpu_command_kind direction)
{
  struct softgpu_command *first = NULL;
  bool busy = false;
  FOR_BACKLOGGED (slot, state, gpu)
    FOR_LANES (lane, head, state, gpu, slot)
      {
        if (head->kind != direction || head->state == SOFTGPU_DONE)
          continue;
        if (head->state == SOFTGPU_RUNNING)
          busy = true;
        else if (softgpu_unblocked (softgpu_queue (state, gpu, slot), lane))
          {
            if (!head->ready_ns)
              head->ready_ns = state->gpu[gpu].clock_ns;
            if (!first || earlier (head, first))
              first = head;
          }
      }
  if (!first || busy)
    return false;
  first->state = SOFTGPU_RUNNING;
  return true;
}

bool
softgpu_start_copies (struct softgpu_state *state, unsigned gpu)
{
  if (!state->bus_rate)
    return false;
  bool to = start_copy (state, gpu, SOFTGPU_TO_GPU);
  return start_copy (state, gpu, SOFTGPU_FROM_GPU) || to;
}
