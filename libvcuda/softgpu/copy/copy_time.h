/* The time that copies and sets take.  */

#pragma once

#include "memory/allocations.h"

/* Keeps the device that STREAM is on busy for as long as BYTES from FROM to TO take it. Does
   nothing if an end of the copy is not memory of that device, or if copies take no time. For a set
   both ends are the same. Call it before the bytes move, so that the device is busy meanwhile.  */
CUresult softgpu_copy_takes_time (CUstream stream, uintptr_t to, uintptr_t from, size_t bytes);
