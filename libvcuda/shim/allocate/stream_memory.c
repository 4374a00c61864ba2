/* Stream-ordered allocations, from the device's current pool or a named one. The pool is charged
   (pool_charge.h).  */

#include "charge/charge.h"
#include "charge/pools.h"
#include "charge/pools_held.h"
#include "memory/settle.h"
#include "pages/device.h"
#include "thread/stream.h"

/* A captured allocation is made, and charged, when the graph runs.  */
static bool
is_captured (CUstream stream)
{
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return stream && stream != CU_STREAM_LEGACY
         && real.cuStreamIsCapturing (stream, &status) == CUDA_SUCCESS
         && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Finds the pool of an allocation: HANDLE, or the current pool of STREAM's device.  */
static CUresult
find_pool (struct vcuda_pool_charge *charge, CUmemoryPool handle, bool named, CUstream stream,
           uint64_t bytes)
{
  int gpu;
  *charge = (struct vcuda_pool_charge){ .stream = stream, .bytes = bytes };
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = vcuda_gpu_of_stream (stream, &gpu, &charge->context);
  if (rc != CUDA_SUCCESS)
    return rc;
  charge->pool = named ? vcuda_pool_of (handle, gpu) : vcuda_current_pool (gpu, charge->context);
  return charge->pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* After CUDA_ERROR_OUT_OF_MEMORY: whether to try again. First the driver takes back what the pools
   of this process keep; then, where not the share but the GPU is full, other containers are asked.
 */
static __attribute__ ((noinline)) bool
makes_room (const struct vcuda_pool_charge *charge, struct vcuda_room *room, bool trimmed)
{
  int gpu = charge->pool->gpu;
  return (!trimmed && vcuda_pools_trim (gpu)) || (!charge->refused && vcuda_make_room (room, gpu));
}

#define ALLOCATE(name, parameters, arguments, pool_handle, named, own_stream)                      \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    struct vcuda_pool_charge charge;                                                               \
    if (vcuda_thread ()->in_driver || is_captured (own_stream))                                    \
      return VCUDA_CALL_DRIVER (real.name arguments);                                              \
    CUresult rc = find_pool (&charge, pool_handle, named, own_stream, bytes);                      \
    if (rc != CUDA_SUCCESS)                                                                        \
      return rc;                                                                                   \
    if (charge.pool->on_host)                                                                      \
      return VCUDA_CALL_DRIVER (real.name arguments);                                              \
    struct vcuda_room room = { 0 };                                                                \
    for (bool trimmed = false;; trimmed = true)                                                    \
      {                                                                                            \
        rc = vcuda_pool_begin (&charge);                                                           \
        if (rc == CUDA_SUCCESS)                                                                    \
          {                                                                                        \
            rc = VCUDA_CALL_DRIVER (real.name arguments);                                          \
            rc = vcuda_pool_end (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0);                     \
          }                                                                                        \
        if (rc != CUDA_ERROR_OUT_OF_MEMORY || !makes_room (&charge, &room, trimmed))               \
          break;                                                                                   \
      }                                                                                            \
    if (charge.refused)                                                                            \
      vcuda_count_refusal (charge.pool->gpu);                                                      \
    return rc;                                                                                     \
  }

#define FROM_CURRENT (CUdeviceptr * dptr, size_t bytes, CUstream stream)
#define FROM_POOL (CUdeviceptr * dptr, size_t bytes, CUmemoryPool pool, CUstream stream)

ALLOCATE (cuMemAllocAsync, FROM_CURRENT, (dptr, bytes, stream), NULL, false, stream)
ALLOCATE (cuMemAllocAsync_ptsz, FROM_CURRENT, (dptr, bytes, stream), NULL, false,
          vcuda_per_thread (stream))
ALLOCATE (cuMemAllocFromPoolAsync, FROM_POOL, (dptr, bytes, pool, stream), pool, true, stream)
ALLOCATE (cuMemAllocFromPoolAsync_ptsz, FROM_POOL, (dptr, bytes, pool, stream), pool, true,
          vcuda_per_thread (stream))

/* The pool keeps freed memory at least until the next wait; later work of the stream may use it
   again.  */
CUresult
vcuda_cuMemFreeAsync (CUdeviceptr dptr, CUstream stream)
{
  VCUDA_RELEASE (dptr, real.cuMemFreeAsync (dptr, stream));
}

CUresult
vcuda_cuMemFreeAsync_ptsz (CUdeviceptr dptr, CUstream stream)
{
  VCUDA_RELEASE (dptr, real.cuMemFreeAsync_ptsz (dptr, stream));
}
