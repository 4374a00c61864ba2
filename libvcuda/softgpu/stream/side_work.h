/* Work in a stream that is none of the GPU's: host functions, and by the kind clock copies over the
   bus. The thread that submits later work to the stream waits for it.  */

#pragma once

#include "driver/driver.h"

/* STREAM's own, or for a default stream all of DEVICE's.  */
static inline struct side_work *
softgpu_side_of (CUstream stream, CUdevice device)
{
  return default_stream (stream) ? &driver.device[device].side : &stream->side;
}

/* Sleeps until STREAM has no such work; a default stream stands for all of DEVICE's.  */
void softgpu_side_wait (CUstream stream, CUdevice device);
bool softgpu_side_busy (CUstream stream, CUdevice device);
