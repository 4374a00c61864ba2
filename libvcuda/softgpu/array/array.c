/* CUDA arrays: creation, size and properties.  */

#include "array/array.h"
#include "graph/graph.h"
#include "stream/streams.h"

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
      return 0; /* video and block formats are not supported */
    }
}

CUresult
softgpu_measure_array (struct CUarray_st *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
  const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP
                         | CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_DEPTH_TEXTURE
                         | CUDA_ARRAY3D_COLOR_ATTACHMENT | MAPPED_LATER;
  unsigned channels = shape->NumChannels, flags = shape->Flags;
  size_t element = format_bytes (shape->Format) * channels;
  REQUIRE ((flags & ~known) == 0 && shape->Width && element, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (channels == 1 || channels == 2 || channels == 4, CUDA_ERROR_INVALID_VALUE);
  bool layered = flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
  /* An array without a height has a depth only if it is layered.  */
  REQUIRE (shape->Height || !shape->Depth || layered, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!layered || shape->Depth, CUDA_ERROR_INVALID_VALUE);
  if (flags & CUDA_ARRAY3D_CUBEMAP)
    REQUIRE (shape->Width == shape->Height && shape->Depth % 6 == 0, CUDA_ERROR_INVALID_VALUE);
  if (flags & MAPPED_LATER) /* "either a 2D, 2D layered or 3D CUDA array" */
    REQUIRE (shape->Height && !(flags & CUDA_ARRAY3D_CUBEMAP)
                 && (flags & MAPPED_LATER) != MAPPED_LATER,
             CUDA_ERROR_INVALID_VALUE);
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
softgpu_back_array (uintptr_t *start, struct tiles **tiles, size_t bytes, const CUarray *levels,
                    unsigned count)
{
  if (!(levels[0]->shape.Flags & MAPPED_LATER))
    return softgpu_allocate (start, bytes, ON_DEVICE, 0, NULL);
  *tiles = softgpu_new_tiles (levels, count);
  return *tiles ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void
unback (uintptr_t start, struct tiles *tiles)
{
  if (tiles)
    softgpu_end_tiles (tiles);
  else
    softgpu_release (start, COUNTED);
}

CUresult
softgpu_end_array (CUcontext context, uintptr_t start, struct tiles *tiles)
{
  /* The memory of a destroyed context is freed already.  */
  bool lives = valid_context (context);
  if (lives)
    softgpu_drain (context->device);
  if (lives || tiles)
    unback (start, tiles);
  return lives ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult
cuArray3DCreate_v2 (CUarray *handle, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (handle && shape, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  struct CUarray_st made = { .kind = ARRAY, .context = context };
  CUarray array = &made;
  REQUIRE_SUCCESS (softgpu_measure_array (&made, shape));
  REQUIRE_SUCCESS (softgpu_back_array (&made.start, &made.tiles, made.bytes, &array, 1));
  array = softgpu_new_record (sizeof *array);
  if (!array)
    {
      unback (made.start, made.tiles);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *array = made;
  *handle = array;
  return CUDA_SUCCESS;
}

CUresult
cuArrayCreate_v2 (CUarray *handle, const CUDA_ARRAY_DESCRIPTOR *shape)
{
  REQUIRE_ARGUMENTS (shape);
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
  CUresult rc = softgpu_end_array (array->context, array->start, array->tiles);
  softgpu_retire (array, sizeof *array);
  return rc;
}

CUresult
cuArray3DGetDescriptor_v2 (CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array)
{
  REQUIRE_ARGUMENTS (shape);
  REQUIRE (array_valid (array), CUDA_ERROR_INVALID_HANDLE);
  *shape = array->shape;
  return CUDA_SUCCESS;
}

CUresult
cuArrayGetDescriptor_v2 (CUDA_ARRAY_DESCRIPTOR *shape, CUarray array)
{
  REQUIRE_ARGUMENTS (shape);
  REQUIRE (array_valid (array), CUDA_ERROR_INVALID_HANDLE);
  *shape = (CUDA_ARRAY_DESCRIPTOR){ .Width = array->shape.Width,
                                    .Height = array->shape.Height,
                                    .Format = array->shape.Format,
                                    .NumChannels = array->shape.NumChannels };
  return CUDA_SUCCESS;
}

CUresult
softgpu_array_requirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, const struct tiles *tiles,
                            size_t bytes)
{
  REQUIRE (!tiles || tiles->deferred, CUDA_ERROR_INVALID_VALUE);
  *needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = tiles ? tiles->count * TILE_BYTES : bytes,
                                             .alignment = tiles ? TILE_BYTES : ARRAY_GRANULE };
  return CUDA_SUCCESS;
}

/* cuda.h promises an answer only for arrays with deferred mapping. Here every array with memory of
   its own has one.  */
CUresult
cuArrayGetMemoryRequirements (CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray array, CUdevice device)
{
  REQUIRE_ARGUMENTS (needs && array_valid (array) && valid_device (device));
  return softgpu_array_requirements (needs, array->tiles, array->bytes);
}
