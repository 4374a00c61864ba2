/* Which entry of the limits page a CUDA device or context is.  */

#pragma once

#include "real.h"
#include "thread/current_context.h"

/* Index of the limits page; -1: this container has no share of that device.  */
int vcuda_gpu_of_device (CUdevice device);

/* The slow path of vcuda_gpu_current: asks the driver, and stores the answer for the thread.  */
CUresult vcuda_gpu_ask_current (int *gpu, CUcontext *context);

/* The GPU and handle of the current context. On failure the driver's own error.  */
static inline CUresult
vcuda_gpu_current (int *gpu, CUcontext *context)
{
  const struct vcuda_current *current = vcuda_current_known ();
  if (__builtin_expect (!current, 0))
    return vcuda_gpu_ask_current (gpu, context);
  *gpu = current->gpu;
  *context = current->context;
  return CUDA_SUCCESS;
}

/* The GPU and context that STREAM belongs to; the default streams are the current context's.  */
CUresult vcuda_gpu_of_stream (CUstream stream, int *gpu, CUcontext *context);

/* The entry with the UUID TEXT, as NVML prints it; -1: there is none.  */
int vcuda_gpu_of_uuid (const char *text);
