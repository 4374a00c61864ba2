/* Functions that the calls for arrays share.  */

#pragma once

#include "array/shape.h"
#include "array/tiles.h"

/* Sets the sizes of an array of this SHAPE.  */
CUresult softgpu_measure_array (struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *shape);

/* Gives an array of COUNT levels memory of BYTES, or tiles without memory.  */
CUresult softgpu_back_array (uintptr_t *start, struct tiles **tiles, size_t bytes,
                             const CUarray *levels, unsigned count);

/* Frees the memory or the tiles of an array, after the work on its GPU.  */
CUresult softgpu_end_array (CUcontext context, uintptr_t start, struct tiles *tiles);

CUresult softgpu_array_requirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs,
                                     const struct tiles *tiles, size_t bytes);
