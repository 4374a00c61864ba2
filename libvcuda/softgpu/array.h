/* CUDA arrays: rows of elements without gaps, whose memory is rounded up to ARRAY_GRANULE.  */

#ifndef SOFTGPU_ARRAY_H
#define SOFTGPU_ARRAY_H

#include "memory.h"

#define ARRAY_GRANULE ((size_t) 512)

struct CUarray_st
{
  uint32_t kind; /* ARRAY */
  CUcontext context;
  CUmipmappedArray of; /* the mipmapped array that this is a level of, or NULL */
  CUDA_ARRAY3D_DESCRIPTOR shape;
  size_t row_bytes;
  size_t rows;
  size_t layers;
  size_t bytes; /* rounded up, as counted */
  uintptr_t start;
};

struct CUmipmappedArray_st
{
  uint32_t kind; /* MIPMAP */
  CUcontext context;
  unsigned count;
  size_t bytes;
  uintptr_t start;
  CUarray level[17]; /* 65536 elements and half as many, down to one */
};

#endif
