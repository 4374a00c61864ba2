/* Allocations and frees: each is reserve, call, settle.  */

#include "alloc_map.h"
#include "charge.h"
#include "device.h"
#include "inside.h"
#include "pages.h"

struct charge
{
  CUcontext context;
  int gpu;
  uint64_t bytes;
};

/* Keeps the charge under KEY when the driver granted it, else gives it back.  */
static CUresult
settle (const struct charge *charge, CUresult rc, uint64_t key, enum vcuda_owner owner)
{
  struct vcuda_allocation allocation = { .key = key,
                                         .bytes = charge->bytes,
                                         .context = charge->context,
                                         .gpu = charge->gpu,
                                         .owner = owner };
  /* Without host memory to remember it the charge stays until the process ends: never the other
     way round.  */
  if (rc != CUDA_SUCCESS)
    vcuda_give_back (charge->gpu, charge->bytes);
  else
    vcuda_map_put (&allocation);
  return rc;
}

static CUresult
charge_current (struct charge *charge, uint64_t bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  charge->bytes = bytes;
  CUresult rc = vcuda_gpu_current (&charge->gpu, &charge->context);
  return rc == CUDA_SUCCESS ? vcuda_reserve (charge->gpu, bytes) : rc;
}

static CUresult
charge_stream (struct charge *charge, CUstream stream, uint64_t bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  charge->bytes = bytes;
  CUresult rc = vcuda_gpu_of_stream (stream, &charge->gpu, &charge->context);
  return rc == CUDA_SUCCESS ? vcuda_reserve (charge->gpu, bytes) : rc;
}

#define ALLOCATE(take, call, key, owner)                                                           \
  do                                                                                               \
    {                                                                                              \
      struct charge charge;                                                                        \
      if (vcuda_inside)                                                                            \
        return call;                                                                               \
      CUresult rc = take;                                                                          \
      if (rc != CUDA_SUCCESS)                                                                      \
        return rc;                                                                                 \
      rc = VCUDA_WITHIN (call);                                                                    \
      return settle (&charge, rc, rc == CUDA_SUCCESS ? (key) : 0, owner);                          \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuMemAlloc (CUdeviceptr_v1 *dptr, unsigned int bytes)
{
  ALLOCATE (charge_current (&charge, bytes), real.cuMemAlloc (dptr, bytes), *dptr,
            VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAlloc_v2 (CUdeviceptr *dptr, size_t bytes)
{
  ALLOCATE (charge_current (&charge, bytes), real.cuMemAlloc_v2 (dptr, bytes), *dptr,
            VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAllocManaged (CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
  ALLOCATE (charge_current (&charge, bytes), real.cuMemAllocManaged (dptr, bytes, flags), *dptr,
            VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAllocAsync (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  ALLOCATE (charge_stream (&charge, stream, bytes), real.cuMemAllocAsync (dptr, bytes, stream),
            *dptr, VCUDA_OF_DEVICE);
}

CUresult
vcuda_cuMemAllocAsync_ptsz (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  ALLOCATE (charge_stream (&charge, stream, bytes), real.cuMemAllocAsync_ptsz (dptr, bytes, stream),
            *dptr, VCUDA_OF_DEVICE);
}

CUresult
vcuda_cuMemAllocFromPoolAsync (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
  ALLOCATE (charge_stream (&charge, stream, bytes),
            real.cuMemAllocFromPoolAsync (dptr, bytes, pool, stream), *dptr, VCUDA_OF_DEVICE);
}

CUresult
vcuda_cuMemAllocFromPoolAsync_ptsz (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool,
                                    CUstream stream)
{
  ALLOCATE (charge_stream (&charge, stream, bytes),
            real.cuMemAllocFromPoolAsync_ptsz (dptr, bytes, pool, stream), *dptr, VCUDA_OF_DEVICE);
}

/* The driver alone knows the pitch. The least it can take is reserved before the call, so nothing
   that would fit is refused, and the padding after it.  */
static CUresult
settle_pitch (struct charge *charge, CUresult rc, uint64_t key, uint64_t pitch, uint64_t height)
{
  uint64_t padding = rc == CUDA_SUCCESS ? pitch * height - charge->bytes : 0;
  if (padding && vcuda_reserve (charge->gpu, padding) != CUDA_SUCCESS)
    {
      VCUDA_WITHIN (real.cuMemFree_v2 (key));
      rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
  else
    charge->bytes += padding;
  return settle (charge, rc, key, VCUDA_OF_CONTEXT);
}

CUresult
vcuda_cuMemAllocPitch (CUdeviceptr_v1 *dptr, unsigned int *pitch, unsigned int width,
                       unsigned int height, unsigned int element)
{
  struct charge charge;
  if (vcuda_inside)
    return real.cuMemAllocPitch (dptr, pitch, width, height, element);
  CUresult rc = charge_current (&charge, (uint64_t) width * height);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_WITHIN (real.cuMemAllocPitch (dptr, pitch, width, height, element));
  return settle_pitch (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0, rc == CUDA_SUCCESS ? *pitch : 0,
                       height);
}

CUresult
vcuda_cuMemAllocPitch_v2 (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                          unsigned int element)
{
  struct charge charge;
  uint64_t bytes;
  if (vcuda_inside)
    return real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element);
  if (__builtin_mul_overflow (width, height, &bytes))
    bytes = UINT64_MAX; /* above every limit */
  CUresult rc = charge_current (&charge, bytes);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = VCUDA_WITHIN (real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element));
  return settle_pitch (&charge, rc, rc == CUDA_SUCCESS ? *dptr : 0, rc == CUDA_SUCCESS ? *pitch : 0,
                       height);
}

/* The entry leaves the map before the driver frees: after it another thread may be given the same
   address.  */
#define RELEASE(key, call)                                                                         \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_allocation gone;                                                                \
      if (vcuda_inside)                                                                            \
        return call;                                                                               \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      bool known = vcuda_map_take (key, &gone);                                                    \
      CUresult rc = VCUDA_WITHIN (call);                                                           \
      if (known && rc == CUDA_SUCCESS)                                                             \
        vcuda_give_back (gone.gpu, gone.bytes);                                                    \
      else if (known)                                                                              \
        vcuda_map_put (&gone);                                                                     \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuMemFree (CUdeviceptr_v1 dptr)
{
  RELEASE (dptr, real.cuMemFree (dptr));
}

CUresult
vcuda_cuMemFree_v2 (CUdeviceptr dptr)
{
  RELEASE (dptr, real.cuMemFree_v2 (dptr));
}

/* Given back when the free is queued: work that comes later in the stream may use it again.  */
CUresult
vcuda_cuMemFreeAsync (CUdeviceptr dptr, CUstream stream)
{
  RELEASE (dptr, real.cuMemFreeAsync (dptr, stream));
}

CUresult
vcuda_cuMemFreeAsync_ptsz (CUdeviceptr dptr, CUstream stream)
{
  RELEASE (dptr, real.cuMemFreeAsync_ptsz (dptr, stream));
}
