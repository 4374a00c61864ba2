/* CUDA arrays: rows of elements without gaps, whose memory is rounded up to ARRAY_GRANULE.  */

#ifndef SOFTGPU_ARRAY_H
#define SOFTGPU_ARRAY_H

#include "tiles.h"

#define ARRAY_GRANULE ((size_t) 512)

/* Kinds of array that have no memory but what cuMemMapArrayAsync maps into them.  */
#define MAPPED_LATER ((unsigned) (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))

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
  struct tiles *tiles; /* of an array that is mapped later; a level's are its mipmapped array's */
};

struct CUmipmappedArray_st
{
  uint32_t kind; /* MIPMAP */
  CUcontext context;
  unsigned count;
  size_t bytes;
  uintptr_t start;
  struct tiles *tiles;
  CUarray level[17]; /* 65536 elements and half as many, down to one */
};

static inline bool
array_valid (CUarray array)
{
  return array && array->kind == ARRAY;
}

static inline bool
mipmap_valid (CUmipmappedArray mipmap)
{
  return mipmap && mipmap->kind == MIPMAP;
}

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
