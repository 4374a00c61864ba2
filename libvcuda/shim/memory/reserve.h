/* Reserves device memory before the driver is called.  */

#pragma once

#include <stdint.h>

#include "real.h"

/* Counts BYTES against the share of GPU (an index of the limits page; -1: none). Before a refusal
   the driver takes back what the pools of this process keep. CUDA_ERROR_OUT_OF_MEMORY if the bytes
   don't fit even then; this counts a refusal.  */
CUresult vcuda_reserve (int gpu, uint64_t bytes);
