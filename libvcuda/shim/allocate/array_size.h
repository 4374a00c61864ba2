/* The memory of a CUDA array.  */

#pragma once

#include "real.h"

/* The bytes of an array of LEVELS mipmap levels (1 for a plain array); UINT64_MAX if the numbers
   exceed every memory.  */
uint64_t vcuda_array_bytes (const CUDA_ARRAY3D_DESCRIPTOR *wanted, unsigned int levels);
