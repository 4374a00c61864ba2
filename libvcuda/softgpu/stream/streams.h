/* Work that is queued on streams.  */

#pragma once

#include "driver/driver.h"

/* What STREAM has yet to do: of default streams, what the legacy one waits for. With the shared
   lock held.  */
struct softgpu_target softgpu_stream_target (CUstream stream, unsigned gpu);

/* Queues COMMAND on STREAM, as the last record of EVENT unless that is NULL; sleeps first while too
   many commands are outstanding. NUMBER may be NULL; it gets the command's number + 1.  */
CUresult softgpu_submit_to (CUstream stream, const struct softgpu_command *command, CUevent event,
                            uint64_t *number);

/* Queues a record of EVENT, which may be recorded there.  */
CUresult softgpu_record_event (CUevent event, CUstream stream);

/* Sleeps until all that was submitted to DEVICE by this process is done.  */
void softgpu_drain (CUdevice device);

/* Sleeps until STREAM has done what was submitted to it.  */
CUresult softgpu_drain_stream (CUstream stream);
