/* Stream-ordered allocations, from the device's current pool or one that the program names.

   Charged is what is allocated, on the pool's device. What a pool keeps of memory that was freed is
   not charged: the driver gives it to the next allocation of the pool.  */

#include "charge.h"
#include "device.h"
#include "pools.h"
#include "settle.h"

static CUstream
per_thread (CUstream stream)
{
  return stream ? stream : CU_STREAM_PER_THREAD;
}

/* What is captured is allocated when the graph runs, and charged then.  */
static bool
is_captured (CUstream stream)
{
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return stream && stream != CU_STREAM_LEGACY
         && real.cuStreamIsCapturing (stream, &status) == CUDA_SUCCESS
         && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult
charge_stream (struct vcuda_charge *charge, CUstream stream, uint64_t bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  charge->bytes = bytes;
  CUresult rc = vcuda_gpu_of_stream (stream, &charge->gpu, &charge->context);
  return rc == CUDA_SUCCESS ? vcuda_reserve (charge->gpu, bytes) : rc;
}

static CUresult
charge_pool (struct vcuda_charge *charge, CUmemoryPool pool, CUstream stream, uint64_t bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = vcuda_gpu_of_stream (stream, &charge->gpu, &charge->context);
  if (rc != CUDA_SUCCESS)
    return rc;
  bool on_host = false;
  charge->gpu = vcuda_gpu_of_pool (pool, charge->gpu, &on_host);
  charge->bytes = on_host ? 0 : bytes;
  return on_host ? CUDA_SUCCESS : vcuda_reserve (charge->gpu, bytes);
}

CUresult
vcuda_cuMemAllocAsync (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  if (is_captured (stream))
    return VCUDA_WITHIN (real.cuMemAllocAsync (dptr, bytes, stream));
  VCUDA_ALLOCATE (charge_stream (&charge, stream, bytes),
                  real.cuMemAllocAsync (dptr, bytes, stream), *dptr, VCUDA_OF_DEVICE);
}

CUresult
vcuda_cuMemAllocAsync_ptsz (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  if (is_captured (per_thread (stream)))
    return VCUDA_WITHIN (real.cuMemAllocAsync_ptsz (dptr, bytes, stream));
  VCUDA_ALLOCATE (charge_stream (&charge, stream, bytes),
                  real.cuMemAllocAsync_ptsz (dptr, bytes, stream), *dptr, VCUDA_OF_DEVICE);
}

CUresult
vcuda_cuMemAllocFromPoolAsync (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
  if (is_captured (stream))
    return VCUDA_WITHIN (real.cuMemAllocFromPoolAsync (dptr, bytes, pool, stream));
  VCUDA_ALLOCATE (charge_pool (&charge, pool, stream, bytes),
                  real.cuMemAllocFromPoolAsync (dptr, bytes, pool, stream), *dptr, VCUDA_OF_DEVICE);
}

CUresult
vcuda_cuMemAllocFromPoolAsync_ptsz (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                    CUstream stream)
{
  if (is_captured (per_thread (stream)))
    return VCUDA_WITHIN (real.cuMemAllocFromPoolAsync_ptsz (dptr, bytes, pool, stream));
  VCUDA_ALLOCATE (charge_pool (&charge, pool, stream, bytes),
                  real.cuMemAllocFromPoolAsync_ptsz (dptr, bytes, pool, stream), *dptr,
                  VCUDA_OF_DEVICE);
}

/* Given back when the free is queued: work that comes later in the stream may use it again.  */
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
