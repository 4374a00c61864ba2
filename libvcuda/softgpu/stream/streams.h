/* Work that is queued on streams.  */

#pragma once

#include "driver/driver.h"

/* What STREAM has yet to do: of default streams, what the legacy one waits for. With the shared
   lock held.  */
struct softgpu_target softgpu_stream_target (CUstream stream, unsigned gpu);

/* Kernels, one after the other, or a copy within the GPU.  */
struct gpu_work
{
  uint64_t time_ns;
  uint64_t piece_ns; /* of one kernel */
  uint32_t width;    /* in threads */
  uint32_t kernels;  /* 0: it is a copy */
};

/* Queues WORK on STREAM; sleeps first while too many commands are outstanding.  */
CUresult softgpu_launch (CUstream stream, const struct gpu_work *work);

/* Queues a record of EVENT, which may be recorded there.  */
CUresult softgpu_record_event (CUevent event, CUstream stream);

/* Sleeps until all that was submitted to DEVICE by this process is done.  */
void softgpu_drain (CUdevice device);

/* Sleeps until STREAM has done what was submitted to it.  */
CUresult softgpu_drain_stream (CUstream stream);
