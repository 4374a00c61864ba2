/* cuMemAlloc, its variants, and their frees.  */

#include "charge/alloc_map.h"
#include "memory/managed.h"
#include "memory/settle.h"
#include "thread/own_calls.h"

CUresult
vcuda_cuMemAlloc (CUdeviceptr_v1 *dptr, unsigned int bytes)
{
  VCUDA_ALLOCATE (vcuda_charge_current (&charge, bytes), real.cuMemAlloc (dptr, bytes), *dptr,
                  VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAlloc_v2 (CUdeviceptr *dptr, size_t bytes)
{
  struct vcuda_charge charge;
  struct vcuda_thread *thread = vcuda_thread ();
  if (thread->in_driver)
    return real.cuMemAlloc_v2 (dptr, bytes);
  CUresult rc = vcuda_charge_current (&charge, bytes);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_CALL_WITH_ROOM (thread, charge.gpu,
                             vcuda_managed (charge.gpu) ? vcuda_alloc_managed (dptr, bytes)
                                                        : real.cuMemAlloc_v2 (dptr, bytes));
  return vcuda_settle (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0, VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAllocManaged (CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
  VCUDA_ALLOCATE (vcuda_charge_current (&charge, bytes),
                  real.cuMemAllocManaged (dptr, bytes, flags), *dptr, VCUDA_MANAGED);
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

CUresult
vcuda_cuMemAllocPitch (CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width,
                       unsigned int height, unsigned int element)
{
  struct vcuda_charge charge;
  if (vcuda_thread ()->in_driver)
    return real.cuMemAllocPitch (dptr, pitch, width, height, element);
  CUresult rc = vcuda_charge_current (&charge, (uint64_t) width * height);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_CALL_WITH_ROOM (vcuda_thread (), charge.gpu,
                             real.cuMemAllocPitch (dptr, pitch, width, height, element));
  return settle_pitch (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0, rc == CUDA_SUCCESS ? *pitch : 0,
                       height);
}

CUresult
vcuda_cuMemAllocPitch_v2 (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                          unsigned int element)
{
  struct vcuda_charge charge;
  uint64_t bytes;
  if (vcuda_thread ()->in_driver)
    return real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element);
  if (__builtin_mul_overflow (width, height, &bytes))
    bytes = UINT64_MAX; /* above every limit */
  CUresult rc = vcuda_charge_current (&charge, bytes);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_CALL_WITH_ROOM (vcuda_thread (), charge.gpu,
                             vcuda_managed (charge.gpu)
                                 ? vcuda_alloc_managed_pitch (dptr, pitch, width, height, element)
                                 : real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element));
  return settle_pitch (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0, rc == CUDA_SUCCESS ? *pitch : 0,
                       height);
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
