/* Copies of one row of bytes, as boxes of one row.  */

#include "driver/driver.h"

/* One side of a row of BYTES.  */
#define FROM(type, member, value, offset)                                                          \
  .srcMemoryType = CU_MEMORYTYPE_##type, .member = (value), .srcXInBytes = (offset)
#define TO(type, member, value, offset)                                                            \
  .dstMemoryType = CU_MEMORYTYPE_##type, .member = (value), .dstXInBytes = (offset)
#define ROW(bytes, ...)                                                                            \
  &(CUDA_MEMCPY3D){ __VA_ARGS__, .WidthInBytes = (bytes), .Height = 1, .Depth = 1 }

CUresult
cuMemcpy (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
  return cuMemcpy3D_v2 (
      ROW (bytes, FROM (UNIFIED, srcDevice, src, 0), TO (UNIFIED, dstDevice, dst, 0)));
}

CUresult
cuMemcpyAsync (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  return cuMemcpy3DAsync_v2 (
      ROW (bytes, FROM (UNIFIED, srcDevice, src, 0), TO (UNIFIED, dstDevice, dst, 0)), stream);
}

CUresult
cuMemcpyHtoD_v2 (CUdeviceptr dst, const void *src, size_t bytes)
{
  return cuMemcpy3D_v2 (ROW (bytes, FROM (HOST, srcHost, src, 0), TO (DEVICE, dstDevice, dst, 0)));
}

CUresult
cuMemcpyHtoDAsync_v2 (CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
  return cuMemcpy3DAsync_v2 (
      ROW (bytes, FROM (HOST, srcHost, src, 0), TO (DEVICE, dstDevice, dst, 0)), stream);
}

CUresult
cuMemcpyDtoH_v2 (void *dst, CUdeviceptr src, size_t bytes)
{
  return cuMemcpy3D_v2 (ROW (bytes, FROM (DEVICE, srcDevice, src, 0), TO (HOST, dstHost, dst, 0)));
}

CUresult
cuMemcpyDtoHAsync_v2 (void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  return cuMemcpy3DAsync_v2 (
      ROW (bytes, FROM (DEVICE, srcDevice, src, 0), TO (HOST, dstHost, dst, 0)), stream);
}

/* Between device addresses even the plain form returns at once, as on a real device.  */
CUresult
cuMemcpyDtoD_v2 (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
{
  return cuMemcpyDtoDAsync_v2 (dst, src, bytes, NULL);
}

CUresult
cuMemcpyDtoDAsync_v2 (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
  return cuMemcpy3DAsync_v2 (
      ROW (bytes, FROM (DEVICE, srcDevice, src, 0), TO (DEVICE, dstDevice, dst, 0)), stream);
}

CUresult
cuMemcpyPeer (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
{
  return cuMemcpyPeerAsync (dst, to, src, from, bytes, NULL);
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
cuMemcpyAtoA_v2 (CUarray dst, size_t to, CUarray src, size_t from, size_t bytes)
{
  return cuMemcpy3D_v2 (
      ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (ARRAY, dstArray, dst, to)));
}

CUresult
cuMemcpyAtoD_v2 (CUdeviceptr dst, CUarray src, size_t from, size_t bytes)
{
  return cuMemcpy3D_v2 (
      ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (DEVICE, dstDevice, dst, 0)));
}

CUresult
cuMemcpyDtoA_v2 (CUarray dst, size_t to, CUdeviceptr src, size_t bytes)
{
  return cuMemcpy3D_v2 (
      ROW (bytes, FROM (DEVICE, srcDevice, src, 0), TO (ARRAY, dstArray, dst, to)));
}

CUresult
cuMemcpyAtoH_v2 (void *dst, CUarray src, size_t from, size_t bytes)
{
  return cuMemcpy3D_v2 (ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (HOST, dstHost, dst, 0)));
}

CUresult
cuMemcpyHtoA_v2 (CUarray dst, size_t to, const void *src, size_t bytes)
{
  return cuMemcpy3D_v2 (ROW (bytes, FROM (HOST, srcHost, src, 0), TO (ARRAY, dstArray, dst, to)));
}

CUresult
cuMemcpyAtoHAsync_v2 (void *dst, CUarray src, size_t from, size_t bytes, CUstream stream)
{
  return cuMemcpy3DAsync_v2 (
      ROW (bytes, FROM (ARRAY, srcArray, src, from), TO (HOST, dstHost, dst, 0)), stream);
}

CUresult
cuMemcpyHtoAAsync_v2 (CUarray dst, size_t to, const void *src, size_t bytes, CUstream stream)
{
  return cuMemcpy3DAsync_v2 (
      ROW (bytes, FROM (HOST, srcHost, src, 0), TO (ARRAY, dstArray, dst, to)), stream);
}
