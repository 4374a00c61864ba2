/* CUDA arrays: rows of elements without gaps, in memory rounded up to ARRAY_GRANULE.  */

#pragma once

#include "driver/driver.h"

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
