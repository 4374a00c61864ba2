/* CUDA arrays: what they take and what they are.  */

#include "graph.h"

static size_t
format_bytes (CUarray_format format)
{
  switch (format)
    {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0; /* the video and block formats are not here */
    }
}

static bool
array_valid (CUarray array)
{
  return array && array->kind == ARRAY;
}

/* Fills in how large an array of this SHAPE is.  */
static CUresult
measure (struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
  const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP
                         | CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE
                         | CUDA_ARRAY3D_COLOR_ATTACHMENT;
  const unsigned later = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
  unsigned channels = shape->NumChannels, flags = shape->Flags;
  size_t element = format_bytes (shape->Format) * channels;
  REQUIRE ((flags & later) == 0, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE ((flags & ~known) == 0 && shape->Width, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (channels == 1 || channels == 2 || channels == 4, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (element, CUDA_ERROR_INVALID_VALUE);
  bool layered = flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  /* Only layers may lie behind single rows.  */
  REQUIRE (shape->Height || !shape->Depth || layered, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!layered || shape->Depth, CUDA_ERROR_INVALID_VALUE);
  if (flags & CUDA_ARRAY3D_CUBEMAP)
    REQUIRE (shape->Width == shape->Height && shape->Depth % 6 == 0, CUDA_ERROR_INVALID_VALUE);
  array->shape = *shape;
  array->rows = shape->Height ? shape->Height : 1;
  array->layers = shape->Depth ? shape->Depth : 1;
  size_t bytes;
  REQUIRE (shape->Width <= 131072 && array->rows <= 131072 && array->layers <= 16384,
           CUDA_ERROR_INVALID_VALUE);
  array->row_bytes = shape->Width * element;
  REQUIRE (!__builtin_mul_overflow (array->row_bytes, array->rows * array->layers, &bytes)
               && bytes <= SIZE_MAX - ARRAY_GRANULE,
           CUDA_ERROR_INVALID_VALUE);
  array->bytes = (bytes + ARRAY_GRANULE - 1) & ~(ARRAY_GRANULE - 1);
  return CUDA_SUCCESS;
}

CUresult
cuArray3DCreate_v2 (CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (handle && shape, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  struct CUarray_st made = { .kind = ARRAY, .context = context };
  CUresult rc = measure (&made, shape);
  if (rc == CUDA_SUCCESS)
    rc = softgpu_allocate (&made.start, made.bytes, ON_DEVICE, 0, NULL);
  if (rc != CUDA_SUCCESS)
    return rc;
  CUarray array = softgpu_new_record (sizeof *array);
  if (!array)
    {
      softgpu_release (made.start, COUNTED);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *array = made;
  *handle = array;
  return CUDA_SUCCESS;
}

CUresult
cuArrayCreate_v2 (CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *shape)
{
  REQUIRE_DRIVER ();
  REQUIRE (shape, CUDA_ERROR_INVALID_VALUE);
  CUDA_ARRAY3D_DESCRIPTOR flat = { .Width = shape->Width,
                                   .Height = shape->Height,
                                   .Format = shape->Format,
                                   .NumChannels = shape->NumChannels };
  return cuArray3DCreate_v2 (handle, &flat);
}

CUresult
cuArrayDestroy (CUarray array)
{
  REQUIRE_DRIVER ();
  REQUIRE (array_valid (array) && !array->of, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE_SAFE ();
  /* A destroyed context has taken the memory along.  */
  CUresult rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (valid_context (array->context))
    {
      softgpu_drain (array->context->device);
      softgpu_release (array->start, COUNTED);
      rc = CUDA_SUCCESS;
    }
  softgpu_retire (array, sizeof *array);
  return rc;
}

CUresult
cuArray3DGetDescriptor_v2 (CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array)
{
  REQUIRE_DRIVER ();
  REQUIRE (shape, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (array_valid (array), CUDA_ERROR_INVALID_HANDLE);
  *shape = array->shape;
  return CUDA_SUCCESS;
}

CUresult
cuArrayGetDescriptor_v2 (CUDA_ARRAY_DESCRIPTOR *shape, CUarray array)
{
  REQUIRE_DRIVER ();
  REQUIRE (shape, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (array_valid (array), CUDA_ERROR_INVALID_HANDLE);
  *shape = (CUDA_ARRAY_DESCRIPTOR){ .Width = array->shape.Width,
                                    .Height = array->shape.Height,
                                    .Format = array->shape.Format,
                                    .NumChannels = array->shape.NumChannels };
  return CUDA_SUCCESS;
}

/* cuda.h promises an answer for arrays with deferred mapping alone; here every array has one.  */
CUresult
cuArrayGetMemoryRequirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray array, CUdevice device)
{
  REQUIRE_DRIVER ();
  REQUIRE (needs && array_valid (array) && valid_device (device), CUDA_ERROR_INVALID_VALUE);
  *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = array->bytes, .alignment = ARRAY_GRANULE };
  return CUDA_SUCCESS;
}

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
  CUresult rc = measure (array, &half);
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
    rc = softgpu_allocate (&mipmap->start, mipmap->bytes, ON_DEVICE, 0, NULL);
  if (rc != CUDA_SUCCESS)
    {
      dismantle (mipmap);
      return rc;
    }
  for (unsigned i = 0; i < mipmap->count; i++)
    {
      mipmap->level[i]->start += mipmap->start;
      mipmap->level[i]->of = mipmap;
    }
  mipmap->kind = MIPMAP;
  *handle = mipmap;
  return CUDA_SUCCESS;
}

static bool
mipmap_valid (CUmipmappedArray mipmap)
{
  return mipmap && mipmap->kind == MIPMAP;
}

CUresult
cuMipmappedArrayGetLevel (CUarray *level, CUmipmappedArray mipmap, unsigned int number)
{
  REQUIRE_DRIVER ();
  REQUIRE (level, CUDA_ERROR_INVALID_VALUE);
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
  CUresult rc = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (valid_context (mipmap->context))
    {
      softgpu_drain (mipmap->context->device);
      softgpu_release (mipmap->start, COUNTED);
      rc = CUDA_SUCCESS;
    }
  dismantle (mipmap);
  return rc;
}

CUresult
cuMipmappedArrayGetMemoryRequirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs,
                                       CUmipmappedArray mipmap, CUdevice device)
{
  REQUIRE_DRIVER ();
  REQUIRE (needs && mipmap_valid (mipmap) && valid_device (device), CUDA_ERROR_INVALID_VALUE);
  *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = mipmap->bytes, .alignment = ARRAY_GRANULE };
  return CUDA_SUCCESS;
}
