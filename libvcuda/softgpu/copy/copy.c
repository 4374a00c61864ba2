/* Copies: every form becomes one box here. A copy moves its bytes as soon as the work before it is
   done. An asynchronous copy moves them when it is submitted, because no kernel here reads or
   writes memory. The time that a copy takes, if any, comes in the stream's order.  */

#include <string.h>

#include "array/shape.h"
#include "copy/copy.h"
#include "graph/graph.h"
#include "memory/allocations.h"
#include "stream/streams.h"

struct side
{
  uintptr_t start; /* of the box */
  size_t pitch;
  size_t slice;
};

/* The number of bytes from the first of the box to the last.  */
static bool
span (size_t width, size_t height, size_t depth, const struct side *side, size_t *bytes)
{
  size_t rows, slices;
  return !__builtin_mul_overflow (height - 1, side->pitch, &rows)
         && !__builtin_mul_overflow (depth - 1, side->slice, &slices)
         && !__builtin_add_overflow (rows, slices, bytes)
         && !__builtin_add_overflow (*bytes, width, bytes);
}

/* A captured copy may name addresses of graph memory that is not allocated yet.  */
static bool
may_touch (uintptr_t start, size_t bytes, bool host_too, bool captured)
{
  return softgpu_may_touch (start, bytes, host_too)
         || (captured && softgpu_of_a_graph (start, bytes));
}

static CUresult
linear_side (struct side *side, const CUDA_MEMCPY3D *copy, uintptr_t base, const size_t at[3],
             size_t pitch, size_t height, bool host_too, bool captured)
{
  REQUIRE (base, CUDA_ERROR_INVALID_VALUE);
  REQUIRE ((copy->Height <= 1 && copy->Depth <= 1) || pitch >= copy->WidthInBytes + at[0],
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (copy->Depth <= 1 || height >= copy->Height + at[1], CUDA_ERROR_INVALID_VALUE);
  /* Of one layer the height may be anything.  */
  REQUIRE (!__builtin_mul_overflow (pitch, height, &side->slice) || copy->Depth <= 1,
           CUDA_ERROR_INVALID_VALUE);
  side->pitch = pitch;
  side->start = base + at[0] + at[1] * pitch + at[2] * side->slice;
  size_t bytes;
  REQUIRE (span (copy->WidthInBytes, copy->Height, copy->Depth, side, &bytes)
               && may_touch (side->start, bytes, host_too, captured),
           CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

static CUresult
array_side (struct side *side, const CUDA_MEMCPY3D *copy, CUarray array, const size_t at[3])
{
  REQUIRE (array_valid (array), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid_context (array->context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  REQUIRE (!array->tiles, CUDA_ERROR_NOT_SUPPORTED);
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
           CUdeviceptr device, CUarray array, const size_t at[3], size_t pitch, size_t height,
           bool captured)
{
  switch (type)
    {
    case CU_MEMORYTYPE_HOST:
      return linear_side (side, copy, (uintptr_t) host, at, pitch, height, true, captured);
    case CU_MEMORYTYPE_DEVICE:
      return linear_side (side, copy, device, at, pitch, height, false, captured);
    case CU_MEMORYTYPE_UNIFIED:
      return linear_side (side, copy, device, at, pitch, height, true, captured);
    case CU_MEMORYTYPE_ARRAY:
      return array_side (side, copy, array, at);
    default:
      return CUDA_ERROR_INVALID_VALUE;
    }
}

static bool
empty (const CUDA_MEMCPY3D *copy)
{
  return !copy->WidthInBytes || !copy->Height || !copy->Depth;
}

static CUresult
find_sides (struct side *from, struct side *to, const CUDA_MEMCPY3D *copy, bool captured)
{
  REQUIRE (copy->srcLOD == 0 && copy->dstLOD == 0, CUDA_ERROR_INVALID_VALUE);
  const size_t from_at[3] = { copy->srcXInBytes, copy->srcY, copy->srcZ };
  const size_t to_at[3] = { copy->dstXInBytes, copy->dstY, copy->dstZ };
  REQUIRE_SUCCESS (find_side (from, copy, copy->srcMemoryType, copy->srcHost, copy->srcDevice,
                              copy->srcArray, from_at, copy->srcPitch, copy->srcHeight, captured));
  return find_side (to, copy, copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray,
                    to_at, copy->dstPitch, copy->dstHeight, captured);
}

CUresult
softgpu_check_copy (const CUDA_MEMCPY3D *copy, CUstream stream)
{
  struct side from, to;
  return empty (copy) ? CUDA_SUCCESS : find_sides (&from, &to, copy, softgpu_capturing (stream));
}

CUresult
softgpu_copy (const CUDA_MEMCPY3D *copy, CUstream stream)
{
  struct side from, to;
  if (empty (copy))
    return CUDA_SUCCESS;
  REQUIRE_SUCCESS (find_sides (&from, &to, copy, false));
  REQUIRE_SUCCESS (softgpu_copy_takes_time (stream, to.start, from.start,
                                            copy->WidthInBytes * copy->Height * copy->Depth));
  for (size_t z = 0; z < copy->Depth; z++)
    for (size_t y = 0; y < copy->Height; y++)
      memmove ((void *) (to.start + z * to.slice + y * to.pitch),
               (const void *) (from.start + z * from.slice + y * from.pitch), copy->WidthInBytes);
  return CUDA_SUCCESS;
}

/* The copy is made when all the work before it is done.  */
CUresult
cuMemcpy3D_v2 (const CUDA_MEMCPY3D *copy)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  softgpu_take_submit_time (&driver.tie);
  CUresult rc = softgpu_drain_stream (NULL);
  if (rc == CUDA_SUCCESS)
    rc = softgpu_copy (copy, NULL);
  softgpu_wait_for_copy (context->device);
  return rc;
}

/* The copy is made on STREAM, or captured into its graph.  */
CUresult
cuMemcpy3DAsync_v2 (const CUDA_MEMCPY3D *copy, CUstream stream)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_captures && !empty (copy))
    {
      REQUIRE_SUCCESS (softgpu_check_copy (copy, stream));
      if (softgpu_capturing (stream))
        return softgpu_capture_copy (stream, copy);
      REQUIRE_SUCCESS (softgpu_check_implicit (stream));
    }
  softgpu_take_submit_time (&driver.tie);
  return softgpu_copy (copy, stream);
}
