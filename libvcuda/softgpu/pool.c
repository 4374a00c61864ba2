/* Memory pools. They keep nothing back: what is freed into a pool is free for everybody.  */

#include <stdlib.h>

#include "memory.h"

static struct CUmemPoolHandle_st default_pool[SOFTGPU_MAX_GPUS];
static CUmemoryPool current_pool[SOFTGPU_MAX_GPUS];

static bool
valid (CUmemoryPool pool)
{
  return pool && pool->kind == MEMORY_POOL;
}

bool
softgpu_pool_take (CUmemoryPool pool, size_t bytes)
{
  size_t used = pool->used_bytes;
  do
    if (pool->most_bytes && (bytes > pool->most_bytes || used > pool->most_bytes - bytes))
      return false;
  while (!atomic_compare_exchange_weak (&pool->used_bytes, &used, used + bytes));
  size_t high = pool->high_bytes;
  while (high < used + bytes
         && !atomic_compare_exchange_weak (&pool->high_bytes, &high, used + bytes))
    ;
  return true;
}

void
softgpu_pool_return (CUmemoryPool pool, size_t bytes)
{
  if (pool)
    pool->used_bytes -= bytes;
}

static CUmemoryPool
default_of (CUdevice dev)
{
  default_pool[dev].kind = MEMORY_POOL;
  default_pool[dev].device = dev;
  return &default_pool[dev];
}

static CUmemoryPool
current_of (CUdevice dev)
{
  return current_pool[dev] ? current_pool[dev] : default_of (dev);
}

CUresult
cuDeviceGetDefaultMemPool (CUmemoryPool *pool, CUdevice dev)
{
  REQUIRE_DRIVER ();
  REQUIRE (pool, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid_device (dev), CUDA_ERROR_INVALID_DEVICE);
  *pool = default_of (dev);
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetMemPool (CUmemoryPool *pool, CUdevice dev)
{
  REQUIRE_DRIVER ();
  REQUIRE (pool, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid_device (dev), CUDA_ERROR_INVALID_DEVICE);
  *pool = current_of (dev);
  return CUDA_SUCCESS;
}

CUresult
cuDeviceSetMemPool (CUdevice dev, CUmemoryPool pool)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_device (dev), CUDA_ERROR_INVALID_DEVICE);
  REQUIRE (valid (pool) && pool->device == dev, CUDA_ERROR_INVALID_VALUE);
  current_pool[dev] = pool;
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolCreate (CUmemoryPool *pool, const CUmemPoolProps *props)
{
  REQUIRE_DRIVER ();
  REQUIRE (pool && props, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED
               && props->location.type == CU_MEM_LOCATION_TYPE_DEVICE,
           CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (valid_device (props->location.id), CUDA_ERROR_INVALID_DEVICE);
  *pool = calloc (1, sizeof **pool);
  REQUIRE (*pool, CUDA_ERROR_OUT_OF_MEMORY);
  (*pool)->kind = MEMORY_POOL;
  (*pool)->device = props->location.id;
  (*pool)->most_bytes = props->maxSize;
  return CUDA_SUCCESS;
}

/* The record stays: blocks that are still out are counted back into it.  */
CUresult
cuMemPoolDestroy (CUmemoryPool pool)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (pool) && pool != default_of (pool->device), CUDA_ERROR_INVALID_VALUE);
  if (current_pool[pool->device] == pool)
    current_pool[pool->device] = NULL;
  pool->kind = 0;
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolTrimTo (CUmemoryPool pool, size_t keep)
{
  REQUIRE_DRIVER ();
  (void) keep;
  return valid (pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuMemPoolSetAttribute (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (pool) && value, CUDA_ERROR_INVALID_VALUE);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    pool->release_threshold = *(const cuuint64_t *) value;
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH
           || attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
    pool->high_bytes = pool->used_bytes;
  else if (attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolGetAttribute (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (pool) && value, CUDA_ERROR_INVALID_VALUE);
  switch (attribute)
    {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *(int *) value = 1;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *(cuuint64_t *) value = pool->release_threshold;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *(cuuint64_t *) value = pool->used_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *(cuuint64_t *) value = pool->high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult
cuMemAllocFromPoolAsync (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (valid (pool), CUDA_ERROR_INVALID_VALUE);
  return softgpu_allocate ((uintptr_t *) dptr, bytes, ON_DEVICE, 0, pool);
}

/* The order on the stream needs no waiting: no kernel here touches memory.  */
CUresult
cuMemAllocAsync (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  REQUIRE_DRIVER ();
  CUcontext context = softgpu_stream_context (stream);
  REQUIRE (context, CUDA_ERROR_INVALID_CONTEXT);
  return cuMemAllocFromPoolAsync (dptr, bytes, current_of (context->device), stream);
}
