/* Sets of memory. They write at once, as copies do; the time that it takes, if any, comes in the
   stream's order.  */

#include <string.h>

#include "copy/copy.h"
#include "graph/graph.h"
#include "memory/allocations.h"

/* Doubles the filled part at each step: the host must finish before the device's time is over.  */
static void
fill_row (char *row, size_t bytes, const CUDA_MEMSET_NODE_PARAMS *set)
{
  memcpy (row, &set->value, set->elementSize);
  for (size_t here, done = set->elementSize; done < bytes; done += here)
    {
      here = done < bytes - done ? done : bytes - done;
      memcpy (row + done, row, here);
    }
}

/* A rectangle of WIDTH elements of SIZE bytes and HEIGHT rows, PITCH bytes apart.  */
CUresult
softgpu_set (const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream)
{
  size_t size = set->elementSize, row, last, bytes;
  if (set->width == 0 || set->height == 0)
    return CUDA_SUCCESS;
  REQUIRE (set->dst && set->dst % size == 0 && !__builtin_mul_overflow (set->width, size, &row),
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (set->height == 1 || set->pitch >= row, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!__builtin_mul_overflow (set->pitch, set->height - 1, &last)
               && !__builtin_add_overflow (last, row, &bytes)
               && softgpu_may_touch (set->dst, bytes, false),
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (softgpu_copy_takes_time (stream, set->dst, set->dst, row * set->height));
  for (size_t y = 0; y < set->height; y++)
    fill_row ((char *) set->dst + y * set->pitch, row, set);
  return CUDA_SUCCESS;
}

static CUresult
fill (const CUDA_MEMSET_NODE_PARAMS *set, CUstream stream, bool asynchronous)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_captures)
    {
      if (softgpu_capturing (stream))
        return softgpu_capture_set (stream, set);
      REQUIRE_SUCCESS (asynchronous ? softgpu_check_implicit (stream) : softgpu_check_unsafe ());
    }
  softgpu_take_submit_time (&driver.tie);
  return softgpu_set (set, stream);
}

#define SET(bits, columns, rows, bytes_apart)                                                      \
  &(CUDA_MEMSET_NODE_PARAMS){ .dst = dst,                                                          \
                              .pitch = (bytes_apart),                                              \
                              .value = value,                                                      \
                              .elementSize = bits / 8,                                             \
                              .width = (columns),                                                  \
                              .height = (rows) }

#define FILLS(bits, type)                                                                          \
  CUresult cuMemsetD##bits##_v2 (CUdeviceptr dst, type value, size_t count)                        \
  {                                                                                                \
    return fill (SET (bits, count, 1, 0), NULL, false);                                            \
  }                                                                                                \
  CUresult cuMemsetD##bits##Async (CUdeviceptr dst, type value, size_t count, CUstream stream)     \
  {                                                                                                \
    return fill (SET (bits, count, 1, 0), stream, true);                                           \
  }                                                                                                \
  CUresult cuMemsetD2D##bits##_v2 (CUdeviceptr dst, size_t pitch, type value, size_t width,        \
                                   size_t height)                                                  \
  {                                                                                                \
    return fill (SET (bits, width, height, pitch), NULL, false);                                   \
  }                                                                                                \
  CUresult cuMemsetD2D##bits##Async (CUdeviceptr dst, size_t pitch, type value, size_t width,      \
                                     size_t height, CUstream stream)                               \
  {                                                                                                \
    return fill (SET (bits, width, height, pitch), stream, true);                                  \
  }

FILLS (8, unsigned char)
FILLS (16, unsigned short)
FILLS (32, unsigned int)
