/* What the calls for arrays share.  */

#ifndef SOFTGPU_ARRAY_H
#define SOFTGPU_ARRAY_H

#include "array/shape.h"
#include "array/tiles.h"

/* Fills in how large an array of this SHAPE is.  */
CUresult softgpu_measure_array (struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *shape);

/* Gives an array of COUNT levels memory of BYTES, or tiles that have none yet.  */
CUresult softgpu_back_array (uintptr_t *start, struct tiles **tiles, size_t bytes,
                             const CUarray *levels, unsigned count);
void softgpu_unback_array (uintptr_t start, struct tiles *tiles);

/* The same for an array that a program destroys, after the work on its GPU.  */
CUresult softgpu_end_array (CUcontext context, uintptr_t start, struct tiles *tiles);

CUresult softgpu_array_requirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs,
                                     const struct tiles *tiles, size_t bytes);

#endif
