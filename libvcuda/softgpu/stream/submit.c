/* Submits commands to streams.  */

#include "stream/side_work.h"
#include "stream/stamp.h"
#include "stream/streams.h"

static uint8_t
lane_of (CUstream stream)
{
  if (default_stream (stream))
    return SOFTGPU_LEGACY_LANE;
  return stream->flags & CU_STREAM_NON_BLOCKING ? 16 + stream->id % 16 : 1 + stream->id % 15;
}

/* With the lock held. 0: too many commands are outstanding.  */
static uint64_t
submit (CUstream stream, struct device *device, const struct softgpu_command *command,
        CUevent event)
{
  struct attachment *tie = &driver.tie;
  softgpu_advance (tie->state, index_of_gpu (device), softgpu_now ());
  softgpu_free_entry (device);
  uint64_t number = softgpu_submit (tie, index_of_gpu (device), *command);
  if (number && event)
    softgpu_set_record (event, number);
  if (number && !default_stream (stream))
    stream->last = number;
  return number;
}

CUresult
softgpu_submit_to (CUstream stream, const struct softgpu_command *command, CUevent event,
                   uint64_t *number)
{
  REQUIRE_STREAM (context, stream);
  struct device *device = &driver.device[context->device];
  struct attachment *tie = &driver.tie;
  struct softgpu_command own = *command;
  own.lane = lane_of (stream);
  softgpu_side_wait (stream, context->device);
  for (;;)
    {
      softgpu_lock (tie);
      uint64_t submitted = submit (stream, device, &own, event);
      uint64_t oldest = softgpu_own_slot (tie)->gpu[index_of_gpu (device)].tail + 1;
      softgpu_unlock (tie);
      if (submitted)
        {
          if (number)
            *number = submitted;
          return CUDA_SUCCESS;
        }
      softgpu_wait (tie, index_of_gpu (device), (struct softgpu_target){ oldest, SOFTGPU_ONE });
    }
}
