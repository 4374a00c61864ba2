/* Work that is queued on streams.  */

#ifndef SOFTGPU_STREAMS_H
#define SOFTGPU_STREAMS_H

#include "driver/driver.h"

/* What GPU must serve this process until STREAM has done what was submitted to it: of default
   streams, all that was. With the shared lock held.  */
uint64_t softgpu_stream_target (CUstream stream, unsigned gpu);

/* Queues DURATION_NS on STREAM; sleeps first while too many launches are outstanding.  */
CUresult softgpu_launch (CUstream stream, uint64_t duration_ns);

/* Sleeps until all that was submitted to DEVICE by this process is done.  */
void softgpu_drain (CUdevice device);

/* Sleeps until STREAM has done what was submitted to it.  */
CUresult softgpu_drain_stream (CUstream stream);

#endif
