/* Copies of one row of bytes, as boxes of one row.  */

#include "driver/driver.h"

/* The sides of a row: the arguments SRC and DST, of arrays with the offsets FROM and TO.  */
#define FROM_HOST .srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = src
#define FROM_DEVICE .srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = src
#define FROM_ANY .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = src
#define FROM_ARRAY .srcMemoryType = CU_MEMORYTYPE_ARRAY, .srcArray = src, .srcXInBytes = from
#define TO_HOST .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = dst
#define TO_DEVICE .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = dst
#define TO_ANY .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = dst
#define TO_ARRAY .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = dst, .dstXInBytes = to

#define ROW(...) &(CUDA_MEMCPY3D){ __VA_ARGS__, .WidthInBytes = bytes, .Height = 1, .Depth = 1 }

/* The function NAME with these parameters, then the number of bytes; ASYNC: then a stream.  */
#define COPY(name, from_side, to_side, ...)                                                        \
  CUresult name (__VA_ARGS__, size_t bytes) { return cuMemcpy3D_v2 (ROW (from_side, to_side)); }
#define ASYNC(name, from_side, to_side, ...)                                                       \
  CUresult name (__VA_ARGS__, size_t bytes, CUstream stream)                                       \
  {                                                                                                \
    return cuMemcpy3DAsync_v2 (ROW (from_side, to_side), stream);                                  \
  }

COPY (cuMemcpy, FROM_ANY, TO_ANY, CUdeviceptr dst, CUdeviceptr src)
ASYNC (cuMemcpyAsync, FROM_ANY, TO_ANY, CUdeviceptr dst, CUdeviceptr src)
COPY (cuMemcpyHtoD_v2, FROM_HOST, TO_DEVICE, CUdeviceptr dst, const void *src)
ASYNC (cuMemcpyHtoDAsync_v2, FROM_HOST, TO_DEVICE, CUdeviceptr dst, const void *src)
COPY (cuMemcpyDtoH_v2, FROM_DEVICE, TO_HOST, void *dst, CUdeviceptr src)
ASYNC (cuMemcpyDtoHAsync_v2, FROM_DEVICE, TO_HOST, void *dst, CUdeviceptr src)
ASYNC (cuMemcpyDtoDAsync_v2, FROM_DEVICE, TO_DEVICE, CUdeviceptr dst, CUdeviceptr src)
COPY (cuMemcpyAtoA_v2, FROM_ARRAY, TO_ARRAY, CUarray dst, size_t to, CUarray src, size_t from)
COPY (cuMemcpyAtoD_v2, FROM_ARRAY, TO_DEVICE, CUdeviceptr dst, CUarray src, size_t from)
COPY (cuMemcpyDtoA_v2, FROM_DEVICE, TO_ARRAY, CUarray dst, size_t to, CUdeviceptr src)
COPY (cuMemcpyAtoH_v2, FROM_ARRAY, TO_HOST, void *dst, CUarray src, size_t from)
ASYNC (cuMemcpyAtoHAsync_v2, FROM_ARRAY, TO_HOST, void *dst, CUarray src, size_t from)
COPY (cuMemcpyHtoA_v2, FROM_HOST, TO_ARRAY, CUarray dst, size_t to, const void *src)
ASYNC (cuMemcpyHtoAAsync_v2, FROM_HOST, TO_ARRAY, CUarray dst, size_t to, const void *src)

/* Between device addresses even the plain form returns at once, as on a real device.  */
CUresult
cuMemcpyDtoD_v2 (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
  return cuMemcpyDtoDAsync_v2 (dst, src, bytes, NULL);
}

CUresult
cuMemcpyPeerAsync (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
                   CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_context (to) && valid_context (from), CUDA_ERROR_INVALID_CONTEXT);
  return cuMemcpyDtoDAsync_v2 (dst, src, bytes, stream);
}

CUresult
cuMemcpyPeer (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
{
  return cuMemcpyPeerAsync (dst, to, src, from, bytes, NULL);
}
