/* Memory pools. A pool takes memory from the device in granules and keeps what is freed into it.
   What it keeps above its release threshold, which is 0 unless the program sets another, goes back
   to the device with the next wait for a stream, an event or a context, as cuda.h says.  */

#include "graph/graph.h"
#include "memory/allocations.h"

static struct CUmemPoolHandle_st default_pool[SOFTGPU_MAX_GPUS];
static CUmemoryPool current_pool[SOFTGPU_MAX_GPUS];
static CUmemoryPool created; /* all that are not destroyed, by next */

#define POOL_GRANULE ((size_t) 2 << 20)

static size_t
in_granules (size_t bytes)
{
  return bytes > SIZE_MAX - POOL_GRANULE ? bytes : (bytes + POOL_GRANULE - 1) & ~(POOL_GRANULE - 1);
}

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

bool
softgpu_pool_take (CUmemoryPool pool, size_t bytes)
{
  pthread_mutex_lock (&guard);
  size_t spare = pool->reserved_bytes - pool->used_bytes;
  size_t missing = bytes > spare ? in_granules (bytes - spare) : 0;
  bool got = !pool->most_bytes
             || (bytes <= pool->most_bytes && pool->used_bytes <= pool->most_bytes - bytes);
  got = got && (!missing || softgpu_charge (pool->device, missing));
  if (got)
    {
      pool->used_bytes += bytes;
      pool->reserved_bytes += missing;
      if (pool->used_high < pool->used_bytes)
        pool->used_high = pool->used_bytes;
      if (pool->reserved_high < pool->reserved_bytes)
        pool->reserved_high = pool->reserved_bytes;
    }
  pthread_mutex_unlock (&guard);
  return got;
}

/* With the guard held: gives the device what the pool keeps above KEEP.  */
static void
trim (CUmemoryPool pool, size_t keep)
{
  if (keep < pool->used_bytes)
    keep = pool->used_bytes;
  keep = in_granules (keep);
  if (pool->reserved_bytes > keep)
    {
      softgpu_uncharge (pool->device, pool->reserved_bytes - keep);
      pool->reserved_bytes = keep;
    }
}

void
softgpu_pool_return (CUmemoryPool pool, size_t bytes)
{
  pthread_mutex_lock (&guard);
  pool->used_bytes -= bytes;
  if (pool->kind != MEMORY_POOL) /* destroyed */
    trim (pool, 0);
  pthread_mutex_unlock (&guard);
}

void
softgpu_pools_waited (CUdevice device)
{
  pthread_mutex_lock (&guard);
  trim (&default_pool[device], default_pool[device].release_threshold);
  for (CUmemoryPool pool = created; pool; pool = pool->next)
    if (pool->device == device)
      trim (pool, pool->release_threshold);
  pthread_mutex_unlock (&guard);
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
  REQUIRE (pool && valid_device (dev), CUDA_ERROR_INVALID_VALUE);
  *pool = current_of (dev);
  return CUDA_SUCCESS;
}

CUresult
cuDeviceSetMemPool (CUdevice dev, CUmemoryPool pool)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_device (dev) && valid_pool (pool) && pool->device == dev,
           CUDA_ERROR_INVALID_VALUE);
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
  REQUIRE (valid_device (props->location.id), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (((unsigned) props->handleTypes & ~(unsigned) CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
               == 0,
           CUDA_ERROR_NOT_SUPPORTED);
  *pool = softgpu_new_record (sizeof **pool);
  REQUIRE (*pool, CUDA_ERROR_OUT_OF_MEMORY);
  (*pool)->kind = MEMORY_POOL;
  (*pool)->device = props->location.id;
  (*pool)->most_bytes = props->maxSize;
  (*pool)->shareable = props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  pthread_mutex_lock (&guard);
  (*pool)->next = created;
  created = *pool;
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}

/* The record stays: blocks that are still out are counted back into it. It keeps nothing more.  */
CUresult
cuMemPoolDestroy (CUmemoryPool pool)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_pool (pool) && pool != default_of (pool->device), CUDA_ERROR_INVALID_VALUE);
  if (current_pool[pool->device] == pool)
    current_pool[pool->device] = NULL;
  pthread_mutex_lock (&guard);
  UNLINK (created, pool, next)
  trim (pool, 0);
  pool->kind = 0;
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolTrimTo (CUmemoryPool pool, size_t keep)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_pool (pool), CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  trim (pool, keep);
  pthread_mutex_unlock (&guard);
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolSetAttribute (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_pool (pool) && value, CUDA_ERROR_INVALID_VALUE);
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
    pool->release_threshold = *(const cuuint64_t *) value;
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
    pool->used_high = pool->used_bytes;
  else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
    pool->reserved_high = pool->reserved_bytes;
  else if (attribute > CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult
cuMemPoolGetAttribute (CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_pool (pool) && value, CUDA_ERROR_INVALID_VALUE);
  if (attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
      && attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
    {
      *(int *) value = 1;
      return CUDA_SUCCESS;
    }
  const cuuint64_t figures[] = {
    [CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = pool->release_threshold,
    [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT] = pool->reserved_bytes,
    [CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] = pool->reserved_high,
    [CU_MEMPOOL_ATTR_USED_MEM_CURRENT] = pool->used_bytes,
    [CU_MEMPOOL_ATTR_USED_MEM_HIGH] = pool->used_high,
  };
  REQUIRE (attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
               && attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH,
           CUDA_ERROR_INVALID_VALUE);
  *(cuuint64_t *) value = figures[attribute];
  return CUDA_SUCCESS;
}

CUresult
cuMemAllocFromPoolAsync (CUdeviceptr *dptr, size_t bytes, CUmemoryPool pool, CUstream stream)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (valid_pool (pool) && !pool->imported && dptr && bytes, CUDA_ERROR_INVALID_VALUE);
  if (softgpu_capturing (stream))
    return softgpu_capture_alloc (stream, dptr, bytes, pool->device);
  return softgpu_allocate ((uintptr_t *) dptr, bytes, ON_DEVICE, 0, pool);
}

/* The order on the stream needs no waiting: no kernel here touches memory.  */
CUresult
cuMemAllocAsync (CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
  REQUIRE_CONTEXT (current);
  CUcontext context = softgpu_stream_context (stream);
  REQUIRE (context, CUDA_ERROR_INVALID_HANDLE);
  return cuMemAllocFromPoolAsync (dptr, bytes, current_of (context->device), stream);
}
