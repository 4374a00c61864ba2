/* Sets of memory.  */

#pragma once

#include "driver/driver.h"

/* Sets the bytes now, and queues the time that this takes on STREAM.  */
CUresult softgpu_set (const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream);
