/* Mipmapped CUDA arrays.  */

#include "array/array.h"
#include "graph/graph.h"

static size_t
halved (size_t extent, unsigned level)
{
  size_t half = extent >> level;
  return extent && !half ? 1 : half;
}

/* A level of the mipmapped array, each extent half of the one before; layers stay.  */
static CUresult
add_level (struct CUmipmappedArray_st *mipmap, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
  unsigned level = mipmap->count;
  CUDA_ARRAY3D_DESCRIPTOR half = *shape;
  half.Width = halved (shape->Width, level);
  half.Height = halved (shape->Height, level);
  if (!(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
    half.Depth = halved (shape->Depth, level);
  CUarray array = softgpu_new_record (sizeof *array);
  REQUIRE (array, CUDA_ERROR_OUT_OF_MEMORY);
  mipmap->level[mipmap->count++] = array;
  CUresult rc = softgpu_measure_array (array, &half);
  array->kind = ARRAY;
  array->context = mipmap->context;
  array->start = mipmap->bytes; /* from the first level's, until there is memory */
  mipmap->bytes += array->bytes;
  return rc;
}

static void
dismantle (CUmipmappedArray mipmap)
{
  for (unsigned i = 0; i < mipmap->count; i++)
    softgpu_retire (mipmap->level[i], sizeof *mipmap->level[i]);
  softgpu_retire (mipmap, sizeof *mipmap);
}

CUresult
cuMipmappedArrayCreate (CUmipmappedArray *handle, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                        unsigned int levels)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (handle && shape && levels, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  size_t widest = shape->Width > shape->Height ? shape->Width : shape->Height;
  if (!(shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && shape->Depth > widest)
    widest = shape->Depth;
  REQUIRE (widest && widest <= 65536, CUDA_ERROR_INVALID_VALUE);
  unsigned most = 64 - (unsigned) __builtin_clzll (widest); /* down to one element */
  CUmipmappedArray mipmap = softgpu_new_record (sizeof *mipmap);
  REQUIRE (mipmap, CUDA_ERROR_OUT_OF_MEMORY);
  mipmap->context = context;
  CUresult rc = CUDA_SUCCESS;
  for (unsigned i = 0; i < levels && i < most && rc == CUDA_SUCCESS; i++)
    rc = add_level (mipmap, shape);
  if (rc == CUDA_SUCCESS)
    rc = softgpu_back_array (&mipmap->start, &mipmap->tiles, mipmap->bytes, mipmap->level,
                             mipmap->count);
  if (rc != CUDA_SUCCESS)
    {
      dismantle (mipmap);
      return rc;
    }
  for (unsigned i = 0; i < mipmap->count; i++)
    {
      mipmap->level[i]->start += mipmap->start;
      mipmap->level[i]->tiles = mipmap->tiles;
      mipmap->level[i]->of = mipmap;
    }
  mipmap->kind = MIPMAP;
  *handle = mipmap;
  return CUDA_SUCCESS;
}

CUresult
cuMipmappedArrayGetLevel (CUarray *level, CUmipmappedArray mipmap, unsigned int number)
{
  REQUIRE_ARGUMENTS (level);
  REQUIRE (mipmap_valid (mipmap), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (number < mipmap->count, CUDA_ERROR_INVALID_VALUE);
  *level = mipmap->level[number];
  return CUDA_SUCCESS;
}

CUresult
cuMipmappedArrayDestroy (CUmipmappedArray mipmap)
{
  REQUIRE_DRIVER ();
  REQUIRE (mipmap_valid (mipmap), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_SAFE ();
  CUresult rc = softgpu_end_array (mipmap->context, mipmap->start, mipmap->tiles);
  dismantle (mipmap);
  return rc;
}

CUresult
cuMipmappedArrayGetMemoryRequirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs,
                                       CUmipmappedArray mipmap, CUdevice device)
{
  REQUIRE_ARGUMENTS (needs && mipmap_valid (mipmap) && valid_device (device));
  return softgpu_array_requirements (needs, mipmap->tiles, mipmap->bytes);
}
