/* Contexts that end give back what they held, and take their meter with them.  */

#include "alloc_map.h"
#include "charge.h"
#include "meter.h"
#include "pages.h"

#define DEVICES 64

static void
give_back_one (const struct vcuda_allocation *gone)
{
  vcuda_give_back (gone->gpu, gone->bytes);
}

static void
context_gone (CUcontext context, bool with_pools)
{
  vcuda_meter_drop (context);
  vcuda_map_take_context (context, with_pools, give_back_one);
}

#define DESTROY(context, call)                                                                     \
  do                                                                                               \
    {                                                                                              \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      vcuda_meter_settle (context);                                                                \
      CUresult rc = call;                                                                          \
      if (rc == CUDA_SUCCESS)                                                                      \
        context_gone (context, false);                                                             \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuCtxDestroy (CUcontext context)
{
  DESTROY (context, real.cuCtxDestroy (context));
}

CUresult
vcuda_cuCtxDestroy_v2 (CUcontext context)
{
  DESTROY (context, real.cuCtxDestroy_v2 (context));
}

/* The primary context's handle. Retaining it to learn it would change when it dies, so this is
   noted when the program itself retains it.  */
static CUcontext primary[DEVICES];

CUresult
vcuda_cuDevicePrimaryCtxRetain (CUcontext *context, CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuDevicePrimaryCtxRetain (context, device);
  if (rc == CUDA_SUCCESS && device >= 0 && device < DEVICES)
    __atomic_store_n (&primary[device], *context, __ATOMIC_RELEASE);
  return rc;
}

static CUresult
after_primary (CUdevice device, CUresult rc, bool reset)
{
  unsigned int flags;
  int active = 0;
  if (rc != CUDA_SUCCESS || device < 0 || device >= DEVICES)
    return rc;
  CUcontext context = __atomic_load_n (&primary[device], __ATOMIC_ACQUIRE);
  bool gone
      = reset
        || (real.cuDevicePrimaryCtxGetState (device, &flags, &active) == CUDA_SUCCESS && !active);
  if (context && gone)
    context_gone (context, true);
  return rc;
}

CUresult
vcuda_cuDevicePrimaryCtxRelease (CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return after_primary (device, real.cuDevicePrimaryCtxRelease (device), false);
}

CUresult
vcuda_cuDevicePrimaryCtxRelease_v2 (CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return after_primary (device, real.cuDevicePrimaryCtxRelease_v2 (device), false);
}

CUresult
vcuda_cuDevicePrimaryCtxReset (CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return after_primary (device, real.cuDevicePrimaryCtxReset (device), true);
}

CUresult
vcuda_cuDevicePrimaryCtxReset_v2 (CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return after_primary (device, real.cuDevicePrimaryCtxReset_v2 (device), true);
}
