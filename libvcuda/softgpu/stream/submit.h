/* Submits commands to streams.  */

#pragma once

#include "driver/driver.h"

/* The lane of STREAM's commands.  */
static inline uint8_t
softgpu_lane_of (CUstream stream)
{
  if (default_stream (stream))
    return SOFTGPU_LEGACY_LANE;
  return stream->flags & CU_STREAM_NON_BLOCKING ? 16 + stream->id % 16 : 1 + stream->id % 15;
}

/* Queues COMMAND on STREAM, as the last record of EVENT unless that is NULL; sleeps first while too
   many commands are outstanding. NUMBER may be NULL; it gets the command's number + 1.  */
CUresult softgpu_submit_to (CUstream stream, const struct softgpu_command *command, CUevent event,
                            uint64_t *number);
