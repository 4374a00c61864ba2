/* Copies of rows, rectangles and boxes between host, device memory and arrays.

   Every form ends in one box from one side to the other, so that a captured copy, too, is one.  */

#include <string.h>

#include "array.h"
#include "copy_time.h"
#include "graph.h"

struct side
{
  uintptr_t start; /* of the box */
  size_t pitch;
  size_t slice;
};

/* Bytes from the box's first to its last.  */
static bool
span (size_t width, size_t height, size_t depth, const struct side *side, size_t *bytes)
{
  size_t rows, slices;
  return !__builtin_mul_overflow (height - 1, side->pitch, &rows)
         && !__builtin_mul_overflow (depth - 1, side->slice, &slices)
         && !__builtin_add_overflow (rows, slices, bytes)
         && !__builtin_add_overflow (*bytes, width, bytes);
}

static CUresult
linear_side (struct side *side, const CUDA_MEMCPY3D *copy, uintptr_t base, const size_t at[3],
             size_t pitch, size_t height, bool host_too)
{
  REQUIRE (base, CUDA_ERROR_INVALID_VALUE);
  REQUIRE ((copy->Height <= 1 && copy->Depth <= 1) || pitch >= copy->WidthInBytes + at[0],
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (copy->Depth <= 1 || height >= copy->Height + at[1], CUDA_ERROR_INVALID_VALUE);
  side->pitch = pitch;
  side->slice = pitch * height;
  side->start = base + at[0] + at[1] * pitch + at[2] * side->slice;
  size_t bytes;
  REQUIRE (span (copy->WidthInBytes, copy->Height, copy->Depth, side, &bytes)
               && softgpu_may_touch (side->start, bytes, host_too),
           CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

static CUresult
array_side (struct side *side, const CUDA_MEMCPY3D *copy, CUarray array, const size_t at[3])
{
  REQUIRE (array && array->kind == ARRAY, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid_context (array->context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  REQUIRE (at[0] <= array->row_bytes && copy->WidthInBytes <= array->row_bytes - at[0]
               && at[1] <= array->rows && copy->Height <= array->rows - at[1]
               && at[2] <= array->layers && copy->Depth <= array->layers - at[2],
           CUDA_ERROR_INVALID_VALUE);
  side->pitch = array->row_bytes;
  side->slice = array->row_bytes * array->rows;
  side->start = array->start + at[0] + at[1] * side->pitch + at[2] * side->slice;
  return CUDA_SUCCESS;
}

static CUresult
find_side (struct side *side, const CUDA_MEMCPY3D *copy, CUmemorytype type, const void *host,
           CUdeviceptr device, CUarray array, const size_t at[3], size_t pitch, size_t height)
{
  switch (type)
    {
    case CU_MEMORYTYPE_HOST:
      return linear_side (side, copy, (uintptr_t) host, at, pitch, height, true);
    case CU_MEMORYTYPE_DEVICE:
      return linear_side (side, copy, device, at, pitch, height, false);
    case CU_MEMORYTYPE_UNIFIED:
      return linear_side (side, copy, device, at, pitch, height, true);
    case CU_MEMORYTYPE_ARRAY:
      return array_side (side, copy, array, at);
    default:
      return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult
softgpu_copy (const CUDA_MEMCPY3D *copy, CUstream stream)
{
  if (!copy->WidthInBytes || !copy->Height || !copy->Depth)
    return CUDA_SUCCESS;
  REQUIRE (copy->srcLOD == 0 && copy->dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
  struct side from, to;
  const size_t from_at[3] = { copy->srcXInBytes, copy->srcY, copy->srcZ };
  const size_t to_at[3] = { copy->dstXInBytes, copy->dstY, copy->dstZ };
  CUresult rc = find_side (&from, copy, copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                           copy->srcArray, from_at, copy->srcPitch, copy->srcHeight);
  if (rc == CUDA_SUCCESS)
    rc = find_side (&to, copy, copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray,
                    to_at, copy->dstPitch, copy->dstHeight);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = softgpu_copy_takes_time (stream, to.start, from.start,
                                copy->WidthInBytes * copy->Height * copy->Depth);
  for (size_t z = 0; z < copy->Depth && rc == CUDA_SUCCESS; z++)
    for (size_t y = 0; y < copy->Height; y++)
      memmove ((void *) (to.start + z * to.slice + y * to.pitch),
               (const void *) (from.start + z * from.slice + y * from.pitch), copy->WidthInBytes);
  return rc;
}

static CUresult
now (const CUDA_MEMCPY3D *copy)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  CUresult rc = softgpu_check_unsafe ();
  if (rc != CUDA_SUCCESS)
    return rc;
  softgpu_drain (context->device);
  return softgpu_copy (copy, NULL);
}

static CUresult
queued (const CUDA_MEMCPY3D *copy, CUstream stream)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_capturing (stream))
    return softgpu_capture_copy (stream, copy);
  return softgpu_copy (copy, stream);
}

static CUDA_MEMCPY3D
from_2d (const CUDA_MEMCPY2D *copy)
{
  return (CUDA_MEMCPY3D){ .srcXInBytes = copy->srcXInBytes,
                          .srcY = copy->srcY,
                          .srcMemoryType = copy->srcMemoryType,
                          .srcHost = copy->srcHost,
                          .srcDevice = copy->srcDevice,
                          .srcArray = copy->srcArray,
                          .srcPitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes,
                          .dstXInBytes = copy->dstXInBytes,
                          .dstY = copy->dstY,
                          .dstMemoryType = copy->dstMemoryType,
                          .dstHost = copy->dstHost,
                          .dstDevice = copy->dstDevice,
                          .dstArray = copy->dstArray,
                          .dstPitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes,
                          .WidthInBytes = copy->WidthInBytes,
                          .Height = copy->Height,
                          .Depth = 1 };
}

CUresult
cuMemcpy2D_v2 (const CUDA_MEMCPY2D *copy)
{
  REQUIRE_DRIVER ();
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D box = from_2d (copy);
  return now (&box);
}

CUresult
cuMemcpy2DUnaligned_v2 (const CUDA_MEMCPY2D *copy)
{
  return cuMemcpy2D_v2 (copy);
}

CUresult
cuMemcpy2DAsync_v2 (const CUDA_MEMCPY2D *copy, CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  CUDA_MEMCPY3D box = from_2d (copy);
  return queued (&box, stream);
}

CUresult
cuMemcpy3D_v2 (const CUDA_MEMCPY3D *copy)
{
  return now (copy);
}

CUresult
cuMemcpy3DAsync_v2 (const CUDA_MEMCPY3D *copy, CUstream stream)
{
  return queued (copy, stream);
}

/* One side of a row of BYTES.  */
#define FROM(type, member, value, offset)                                                          \
  .srcMemoryType = CU_MEMORYTYPE_##type, .member = (value), .srcXInBytes = (offset)
#define TO(type, member, value, offset)                                                            \
  .dstMemoryType = CU_MEMORYTYPE_##type, .member = (value), .dstXInBytes = (offset)
#define ROW(bytes, ...)                                                                            \
  &(CUDA_MEMCPY3D){ __VA_ARGS__, .WidthInBytes = (bytes), .Height = 1, .Depth = 1 }

CUresult
cuMemcpyAtoA_v2 (CUarray dst, size_t to, CUarray src, size_t from, size_t bytes)
{
  return now (ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (ARRAY, dstArray, dst, to)));
}

CUresult
cuMemcpyAtoD_v2 (CUdeviceptr dst, CUarray src, size_t from, size_t bytes)
{
  return now (ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (DEVICE, dstDevice, dst, 0)));
}

CUresult
cuMemcpyDtoA_v2 (CUarray dst, size_t to, CUdeviceptr src, size_t bytes)
{
  return now (ROW (bytes, FROM (DEVICE, srcDevice, src, 0), TO (ARRAY, dstArray, dst, to)));
}

CUresult
cuMemcpyAtoH_v2 (void *dst, CUarray src, size_t from, size_t bytes)
{
  return now (ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (HOST, dstHost, dst, 0)));
}

CUresult
cuMemcpyHtoA_v2 (CUarray dst, size_t to, const void *src, size_t bytes)
{
  return now (ROW (bytes, FROM (HOST, srcHost, src, 0), TO (ARRAY, dstArray, dst, to)));
}

CUresult
cuMemcpyAtoHAsync_v2 (void *dst, CUarray src, size_t from, size_t bytes, CUstream stream)
{
  return queued (ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (HOST, dstHost, dst, 0)),
                 stream);
}

CUresult
cuMemcpyHtoAAsync_v2 (CUarray dst, size_t to, const void *src, size_t bytes, CUstream stream)
{
  return queued (ROW (bytes, FROM (HOST, srcHost, src, 0), TO (ARRAY, dstArray, dst, to)), stream);
}
