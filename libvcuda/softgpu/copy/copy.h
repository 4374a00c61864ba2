/* Copies of boxes, and sets of memory.  */

#pragma once

#include "driver/driver.h"

/* Whether a copy on STREAM may access both ends of COPY; if STREAM is captured, when the graph
 * runs.
 */
CUresult softgpu_check_copy (const CUDA_MEMCPY3D *copy, CUstream stream);

/* Moves the bytes of COPY now, and queues the time that this takes on STREAM.  */
CUresult softgpu_copy (const CUDA_MEMCPY3D *copy, CUstream stream);

/* Sets the bytes now, and queues the time that this takes on STREAM.  */
CUresult softgpu_set (const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream);

/* Keeps the device that STREAM is on busy for as long as BYTES from FROM to TO take it, or the bus,
   as `softgpu create --copy-rate` and --bus-rate say; without them copies take no time. For a set
   both ends are the same. Call it before the bytes move, so that the device is busy meanwhile.  */
CUresult softgpu_copy_takes_time (CUstream stream, uintptr_t to, uintptr_t from, size_t bytes);

/* Sleeps until the last copy over the bus on a default stream is done.  */
void softgpu_wait_for_copy (CUdevice device);
