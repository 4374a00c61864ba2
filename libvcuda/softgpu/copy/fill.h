#ifndef SOFTGPU_FILL_H
#define SOFTGPU_FILL_H

#include "driver/driver.h"

/* Carries out a memset, now; the time that it takes comes on STREAM.  */
CUresult softgpu_set (const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream);

#endif
