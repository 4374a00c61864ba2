/* Queries of a context, and its settings that are stored without effect.  */

#include "graph/capture.h"
#include "memory/allocations.h"
#include "stream/streams.h"

CUresult
cuCtxGetDevice_v2 (CUdevice *device, CUcontext context)
{
  REQUIRE_DRIVER ();
  REQUIRE (device, CUDA_ERROR_INVALID_VALUE);
  context = context ? context : softgpu_current_context ();
  REQUIRE (valid_context (context), CUDA_ERROR_INVALID_CONTEXT);
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult
cuCtxGetDevice (CUdevice *device)
{
  return cuCtxGetDevice_v2 (device, NULL);
}

CUresult
cuCtxSynchronize_v2 (CUcontext context)
{
  REQUIRE_DRIVER ();
  context = context ? context : softgpu_current_context ();
  REQUIRE (valid_context (context), CUDA_ERROR_INVALID_CONTEXT);
  if (softgpu_captures)
    REQUIRE_SUCCESS (softgpu_refuse_context (context));
  REQUIRE_SUCCESS (softgpu_check_unsafe ());
  softgpu_drain (context->device);
  softgpu_pools_waited (context->device);
  return CUDA_SUCCESS;
}

CUresult
cuCtxSynchronize (void)
{
  return cuCtxSynchronize_v2 (NULL);
}

CUresult
cuCtxGetFlags (unsigned int *flags)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (flags, CUDA_ERROR_INVALID_VALUE);
  *flags = context->flags;
  return CUDA_SUCCESS;
}

CUresult
cuCtxSetFlags (unsigned int flags)
{
  REQUIRE_CONTEXT (context);
  REQUIRE ((flags & ~(unsigned) CU_CTX_FLAGS_MASK) == 0, CUDA_ERROR_INVALID_VALUE);
  context->flags = flags;
  return CUDA_SUCCESS;
}

CUresult
cuCtxGetId (CUcontext context, unsigned long long *id)
{
  REQUIRE_DRIVER ();
  context = context ? context : softgpu_current_context ();
  REQUIRE (valid_context (context), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  REQUIRE (id, CUDA_ERROR_INVALID_VALUE);
  *id = context->id;
  return CUDA_SUCCESS;
}

CUresult
cuCtxGetApiVersion (CUcontext context, unsigned int *version)
{
  REQUIRE_DRIVER ();
  context = context ? context : softgpu_current_context ();
  REQUIRE (valid_context (context), CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (version, CUDA_ERROR_INVALID_VALUE);
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult
cuCtxGetStreamPriorityRange (int *least, int *greatest)
{
  REQUIRE_CONTEXT (context);
  if (least)
    *least = LEAST_PRIORITY;
  if (greatest)
    *greatest = GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

CUresult
cuCtxGetCacheConfig (CUfunc_cache *config)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (config, CUDA_ERROR_INVALID_VALUE);
  *config = CU_FUNC_CACHE_PREFER_NONE;
  return CUDA_SUCCESS;
}

CUresult
cuCtxSetCacheConfig (CUfunc_cache config)
{
  REQUIRE_CONTEXT (context);
  REQUIRE ((unsigned) config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

CUresult
cuCtxResetPersistingL2Cache (void)
{
  REQUIRE_CONTEXT (context);
  return CUDA_SUCCESS;
}
