/* Copies and sets. They move bytes at once, after the work before them, and take no GPU time: no
   kernel here reads or writes memory, so an asynchronous one may move its bytes when submitted.  */

#include <string.h>

#include "memory.h"

/* BYTES from ADDRESS on lie within one block, or outside of all of them: that is host memory,
   which the driver is not told of.  */
static bool
within (CUdeviceptr address, size_t bytes, bool host_too)
{
  struct block block;
  if (!softgpu_find_block (address, &block))
    return host_too;
  return bytes <= block.bytes && address - block.start <= block.bytes - bytes;
}

static CUresult
move (CUdeviceptr to, bool to_host, CUdeviceptr from, bool from_host, size_t bytes, bool waits)
{
  REQUIRE_CONTEXT (context);
  if (bytes == 0)
    return CUDA_SUCCESS;
  REQUIRE (to && from, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (within (to, bytes, to_host) && within (from, bytes, from_host),
           CUDA_ERROR_INVALID_VALUE);
  if (waits)
    softgpu_drain (context->device);
  memmove ((void *) to, (const void *) from, bytes);
  return CUDA_SUCCESS;
}

CUresult
cuMemcpy (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
  return move (dst, true, src, true, bytes, true);
}

CUresult
cuMemcpyAsync (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  (void) stream;
  return move (dst, true, src, true, bytes, false);
}

CUresult
cuMemcpyHtoD_v2 (CUdeviceptr dst, const void *src, size_t bytes)
{
  return move (dst, false, (CUdeviceptr) src, true, bytes, true);
}

CUresult
cuMemcpyHtoDAsync_v2 (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
  (void) stream;
  return move (dst, false, (CUdeviceptr) src, true, bytes, false);
}

CUresult
cuMemcpyDtoH_v2 (void *dst, CUdeviceptr src, size_t bytes)
{
  return move ((CUdeviceptr) dst, true, src, false, bytes, true);
}

CUresult
cuMemcpyDtoHAsync_v2 (void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  (void) stream;
  return move ((CUdeviceptr) dst, true, src, false, bytes, false);
}

/* Between device addresses even the plain form returns at once, as on a real device.  */
CUresult
cuMemcpyDtoD_v2 (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
  return move (dst, false, src, false, bytes, false);
}

CUresult
cuMemcpyDtoDAsync_v2 (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  (void) stream;
  return move (dst, false, src, false, bytes, false);
}

CUresult
cuMemcpyPeer (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_context (to) && valid_context (from), CUDA_ERROR_INVALID_CONTEXT);
  return move (dst, false, src, false, bytes, false);
}

CUresult
cuMemcpyPeerAsync (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
                   CUstream stream)
{
  (void) stream;
  return cuMemcpyPeer (dst, to, src, from, bytes);
}

/* A rectangle of WIDTH elements of SIZE bytes and HEIGHT rows, PITCH bytes apart.  */
static CUresult
fill (CUdeviceptr dst, size_t pitch, unsigned value, size_t size, size_t width, size_t height)
{
  REQUIRE_CONTEXT (context);
  if (width == 0 || height == 0)
    return CUDA_SUCCESS;
  size_t row, last, bytes;
  REQUIRE (dst && dst % size == 0 && !__builtin_mul_overflow (width, size, &row),
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (height == 1 || pitch >= row, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!__builtin_mul_overflow (pitch, height - 1, &last)
               && !__builtin_add_overflow (last, row, &bytes) && within (dst, bytes, false),
           CUDA_ERROR_INVALID_VALUE);
  for (size_t y = 0; y < height; y++)
    {
      char *at = (char *) dst + y * pitch;
      if (size == 1)
        memset (at, (int) value, width);
      else
        for (size_t x = 0; x < width; x++)
          memcpy (at + x * size, &value, size);
    }
  return CUDA_SUCCESS;
}

#define FILLS(bits, type)                                                                          \
  CUresult cuMemsetD##bits##_v2 (CUdeviceptr dst, type value, size_t count)                        \
  {                                                                                                \
    return fill (dst, 0, value, bits / 8, count, 1);                                               \
  }                                                                                                \
  CUresult cuMemsetD##bits##Async (CUdeviceptr dst, type value, size_t count, CUstream stream)     \
  {                                                                                                \
    (void) stream;                                                                                 \
    return fill (dst, 0, value, bits / 8, count, 1);                                               \
  }                                                                                                \
  CUresult cuMemsetD2D##bits##_v2 (CUdeviceptr dst, size_t pitch, type value, size_t width,        \
                                   size_t height)                                                  \
  {                                                                                                \
    return fill (dst, pitch, value, bits / 8, width, height);                                      \
  }                                                                                                \
  CUresult cuMemsetD2D##bits##Async (CUdeviceptr dst, size_t pitch, type value, size_t width,      \
                                     size_t height, CUstream stream)                               \
  {                                                                                                \
    (void) stream;                                                                                 \
    return fill (dst, pitch, value, bits / 8, width, height);                                      \
  }

FILLS (8, unsigned char)
FILLS (16, unsigned short)
FILLS (32, unsigned int)
