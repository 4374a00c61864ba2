/* Driver calls that the shim makes on its own account.

   While a thread captures a stream in the global mode, the driver refuses a potentially unsafe call
   (cuEventQuery, cuMemFree, cuCtxSynchronize ...) of any thread and invalidates the capture, unless
   the calling thread's own capture mode is relaxed. So the shim relaxes its thread's mode around
   such calls, and restores it before the program's own call.  */

#pragma once

#include <stdbool.h>

#include "real.h"

struct vcuda_capture_mode
{
  CUstreamCaptureMode mode; /* the thread's mode before */
  bool changed;             /* false: the driver has no such mode */
};

static inline struct vcuda_capture_mode
vcuda_own_calls_begin (void)
{
  struct vcuda_capture_mode before = { .mode = CU_STREAM_CAPTURE_MODE_RELAXED };
  before.changed = real.cuThreadExchangeStreamCaptureMode (&before.mode) == CUDA_SUCCESS;
  return before;
}

static inline void
vcuda_own_calls_end (struct vcuda_capture_mode before)
{
  if (before.changed)
    real.cuThreadExchangeStreamCaptureMode (&before.mode);
}
