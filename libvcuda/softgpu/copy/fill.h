/* Sets of memory.  */

#ifndef SOFTGPU_FILL_H
#define SOFTGPU_FILL_H

#include "driver/driver.h"

/* Sets the bytes now, and queues the time that this takes on STREAM.  */
CUresult softgpu_set (const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream);

#endif
