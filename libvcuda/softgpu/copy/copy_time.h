#ifndef SOFTGPU_COPY_TIME_H
#define SOFTGPU_COPY_TIME_H

#include "memory/allocations.h"

/* Keeps the device that STREAM is on busy for as long as BYTES from FROM to TO take it. Nothing
   where an end of the copy is not that device's memory, and where copies take no time. Of a set
   both ends are the same. To be called before the bytes move, so that the device is at it
   meanwhile.  */
CUresult softgpu_copy_takes_time (CUstream stream, uintptr_t to, uintptr_t from, size_t bytes);

#endif
