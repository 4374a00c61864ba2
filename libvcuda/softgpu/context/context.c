/* Contexts: primary ones, and those of cuCtxCreate.  */

#include <stdlib.h>

#include "array/tiles.h"
#include "context/context.h"
#include "stream/streams.h"

static _Atomic uint64_t next_id = 1000;

/* Counts a context: NVML lists a process on a GPU while it has one there. False: the GPU has too
   little memory for it. Called with the shared lock held.  */
static bool
begin_context (CUdevice device)
{
  uint64_t bytes = driver.tie.state->context_bytes;
  if (bytes && !softgpu_charge_locked (device, bytes))
    return false;
  softgpu_touch_queue (driver.tie.state, gpu_index (device), driver.tie.slot);
  softgpu_own_slot (&driver.tie)->gpu[gpu_index (device)].contexts++;
  return true;
}

/* Whether the compute mode lets this process have a context. Clients of MPS have their server's. */
static bool
is_admitted (CUdevice device)
{
  const struct softgpu_state *state = driver.tie.state;
  unsigned gpu = gpu_index (device);
  if (!state->gpu[gpu].exclusive || softgpu_own_slot (&driver.tie)->mps_server)
    return true;
  softgpu_lock (&driver.tie);
  softgpu_reap (&driver.tie);
  bool free = true;
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    free &= slot == driver.tie.slot || state->slot[slot].kind == SOFTGPU_FREE
            || !state->slot[slot].gpu[gpu].contexts;
  softgpu_unlock (&driver.tie);
  return free;
}

static void
end_context (CUdevice device)
{
  softgpu_lock (&driver.tie);
  softgpu_own_slot (&driver.tie)->gpu[gpu_index (device)].contexts--;
  softgpu_uncharge (device, driver.tie.state->context_bytes);
  softgpu_unlock (&driver.tie);
}

static void
lose_all (CUcontext context)
{
  softgpu_free_context_memory (context);
  softgpu_end_context_tiles (context);
  softgpu_usual_limits (context);
  context->lives++;
}

CUresult
cuCtxCreate_v2 (CUcontext *pctx, unsigned int flags, CUdevice device)
{
  REQUIRE_DRIVER ();
  REQUIRE (pctx && (flags & ~(unsigned) CU_CTX_FLAGS_MASK) == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid_device (device), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE (!gpu_of (device)->lost && is_admitted (device), CUDA_ERROR_DEVICE_UNAVAILABLE);
  REQUIRE (softgpu_may_push_context (), CUDA_ERROR_OUT_OF_MEMORY);
  CUcontext context = softgpu_new_record (sizeof *context);
  REQUIRE (context, CUDA_ERROR_OUT_OF_MEMORY);
  softgpu_lock (&driver.tie);
  bool begun = begin_context (device);
  softgpu_unlock (&driver.tie);
  if (!begun)
    {
      softgpu_retire (context, sizeof *context);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *context = (struct CUctx_st){
    .kind = CONTEXT, .device = device, .flags = flags, .id = atomic_fetch_add (&next_id, 1)
  };
  softgpu_push_context (context);
  *pctx = context;
  return CUDA_SUCCESS;
}

CUresult
cuCtxCreate_v3 (CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
                unsigned int flags, CUdevice dev)
{
  (void) paramsArray;
  REQUIRE (numParams == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return cuCtxCreate_v2 (pctx, flags, dev);
}

CUresult
cuCtxCreate_v4 (CUcontext *pctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
  REQUIRE (!params || params->numExecAffinityParams == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
  return cuCtxCreate_v2 (pctx, flags, dev);
}

CUresult
cuCtxDestroy_v2 (CUcontext context)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_context (context) && !context->primary, CUDA_ERROR_INVALID_CONTEXT);
  softgpu_drain (context->device);
  lose_all (context);
  end_context (context->device);
  if (softgpu_current_context () == context)
    softgpu_pop_context ();
  context->kind = 0;
  return CUDA_SUCCESS;
}

CUresult
cuDevicePrimaryCtxRetain (CUcontext *pctx, CUdevice dev)
{
  REQUIRE_DRIVER ();
  REQUIRE (pctx, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid_device (dev), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE (!gpu_of (dev)->lost && is_admitted (dev), CUDA_ERROR_DEVICE_UNAVAILABLE);
  CUcontext primary = &driver.device[dev].primary;
  softgpu_lock (&driver.tie);
  bool active = primary->retained || begin_context (dev);
  primary->retained += active;
  softgpu_unlock (&driver.tie);
  REQUIRE (active, CUDA_ERROR_OUT_OF_MEMORY);
  *pctx = primary;
  return CUDA_SUCCESS;
}

static CUresult
let_go (CUdevice dev, bool entirely)
{
  REQUIRE_VALID_DEVICE (dev);
  CUcontext primary = &driver.device[dev].primary;
  softgpu_lock (&driver.tie);
  unsigned before = primary->retained;
  if (!entirely && before)
    primary->retained--;
  bool last = before && (entirely || primary->retained == 0);
  softgpu_unlock (&driver.tie);
  REQUIRE (before || entirely, CUDA_ERROR_INVALID_CONTEXT);
  if (last)
    {
      softgpu_drain (dev);
      lose_all (primary);
      softgpu_pools_waited (dev);
      if (!entirely)
        end_context (dev);
    }
  return CUDA_SUCCESS;
}

CUresult
cuDevicePrimaryCtxRelease_v2 (CUdevice dev)
{
  return let_go (dev, false);
}

ALSO_NAMED (cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

CUresult
cuDevicePrimaryCtxReset_v2 (CUdevice dev)
{
  return let_go (dev, true);
}

ALSO_NAMED (cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

CUresult
cuDevicePrimaryCtxSetFlags_v2 (CUdevice dev, unsigned int flags)
{
  REQUIRE_VALID_DEVICE (dev);
  REQUIRE ((flags & ~(unsigned) CU_CTX_FLAGS_MASK) == 0, CUDA_ERROR_INVALID_VALUE);
  driver.device[dev].primary.flags = flags;
  return CUDA_SUCCESS;
}

ALSO_NAMED (cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);

CUresult
cuDevicePrimaryCtxGetState (CUdevice dev, unsigned int *flags, int *active)
{
  REQUIRE_VALID_DEVICE (dev);
  REQUIRE (flags && active, CUDA_ERROR_INVALID_VALUE);
  *flags = driver.device[dev].primary.flags;
  *active = driver.device[dev].primary.retained > 0;
  return CUDA_SUCCESS;
}
