/* Contexts that end give back what they held, and take their meter with them.  */

#include "alloc_map.h"
#include "charge.h"
#include "current.h"
#include "graph_memory.h"
#include "meter.h"
#include "pages.h"

#define DEVICES 64

static void
context_gone (CUcontext context, bool with_pools)
{
  vcuda_current_forget_all ();
  vcuda_meter_drop (context);
  uint64_t bytes[VCUDA_MAX_GPUS] = { 0 };
  vcuda_map_take_context (context, with_pools, bytes);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    if (bytes[gpu])
      vcuda_give_back (gpu, bytes[gpu]);
  vcuda_graph_memory_settle ();
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

/* The old way to give a context up; the last one to detach destroys it.  */
CUresult
vcuda_cuCtxDetach (CUcontext context)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  unsigned int version;
  vcuda_meter_settle (context);
  CUresult rc = real.cuCtxDetach (context);
  if (rc != CUDA_SUCCESS)
    return rc;
  vcuda_current_forget_all ();
  if (real.cuCtxGetApiVersion (context, &version) != CUDA_SUCCESS)
    context_gone (context, false);
  return rc;
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

/* Before its end, which waits for its work anyway.  */
static void
settle_primary (CUdevice device)
{
  CUcontext context = NULL;
  if (device >= 0 && device < DEVICES)
    context = __atomic_load_n (&primary[device], __ATOMIC_ACQUIRE);
  if (context)
    vcuda_meter_settle (context);
}

static CUresult
after_primary (CUdevice device, CUresult rc, bool reset)
{
  unsigned int flags;
  int active = 0;
  vcuda_current_forget_all ();
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
  settle_primary (device);
  return after_primary (device, real.cuDevicePrimaryCtxReset (device), true);
}

CUresult
vcuda_cuDevicePrimaryCtxReset_v2 (CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  settle_primary (device);
  return after_primary (device, real.cuDevicePrimaryCtxReset_v2 (device), true);
}
