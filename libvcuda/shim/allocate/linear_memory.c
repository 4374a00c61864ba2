/* cuMemAlloc, its variants, and their frees.  */

#include "charge/alloc_map.h"
#include "memory/managed.h"
#include "memory/settle.h"
#include "thread/own_calls.h"

CUresult
vcuda_cuMemAlloc (CUdeviceptr_v1 *dptr, unsigned int bytes)
{
  VCUDA_ALLOCATE (bytes, real.cuMemAlloc (dptr, bytes), *dptr, VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAlloc_v2 (CUdeviceptr *dptr, size_t bytes)
{
  VCUDA_ALLOCATE_AS (bytes, real.cuMemAlloc_v2 (dptr, bytes),
                     vcuda_managed (charge.gpu) ? vcuda_alloc_managed (dptr, bytes)
                                                : real.cuMemAlloc_v2 (dptr, bytes),
                     vcuda_settle (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0, VCUDA_OF_CONTEXT));
}

CUresult
vcuda_cuMemAllocManaged (CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
  VCUDA_ALLOCATE (bytes, real.cuMemAllocManaged (dptr, bytes, flags), *dptr, VCUDA_MANAGED);
}

/* Only the driver knows the pitch. The least that it can take is reserved before the call, so that
   nothing is refused that would fit, and the padding after it.  */
static CUresult
settle_pitch (struct vcuda_charge *charge, CUresult rc, uint64_t key, uint64_t pitch,
              uint64_t height)
{
  if (rc == CUDA_SUCCESS && pitch * height > charge->bytes
      && vcuda_charge_more (charge, pitch * height - charge->bytes) != CUDA_SUCCESS)
    {
      struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
      VCUDA_CALL_DRIVER (real.cuMemFree_v2 (key));
      vcuda_own_calls_end (mode);
      rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
  return vcuda_settle (charge, rc, key, VCUDA_OF_CONTEXT);
}

#define ALLOCATE_PITCH(bytes, passed, call)                                                        \
  VCUDA_ALLOCATE_AS (bytes, passed, call,                                                          \
                     settle_pitch (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0,                    \
                                   rc == CUDA_SUCCESS ? *pitch : 0, height))

CUresult
vcuda_cuMemAllocPitch (CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width,
                       unsigned int height, unsigned int element)
{
  ALLOCATE_PITCH ((uint64_t) width * height,
                  real.cuMemAllocPitch (dptr, pitch, width, height, element),
                  real.cuMemAllocPitch (dptr, pitch, width, height, element));
}

CUresult
vcuda_cuMemAllocPitch_v2 (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                          unsigned int element)
{
  uint64_t bytes;
  if (__builtin_mul_overflow (width, height, &bytes))
    bytes = UINT64_MAX; /* above every limit */
  ALLOCATE_PITCH (bytes, real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element),
                  vcuda_managed (charge.gpu)
                      ? vcuda_alloc_managed_pitch (dptr, pitch, width, height, element)
                      : real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element));
}

CUresult
vcuda_cuMemFree (CUdeviceptr_v1 dptr)
{
  VCUDA_RELEASE (dptr, real.cuMemFree (dptr));
}

CUresult
vcuda_cuMemFree_v2 (CUdeviceptr dptr)
{
  VCUDA_RELEASE (dptr, real.cuMemFree_v2 (dptr));
}
