/* Which pools exist, and which one a call uses.

   Drivers since 13.0 report a pool's location. For older ones the location is remembered from the
   pool's creation; a pool that the program did not create is the default pool of the stream's
   device.  */

#include "charge/pools.h"

#include <stdlib.h>

#include "charge/alloc_map.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "thread/current_context.h"
#include "thread/in_driver.h"

#define MOST_POOLS 65535

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct vcuda_pool *pools[MOST_POOLS];
static unsigned count;
static unsigned first_unused; /* no record below it is unused */

/* By GPU: the pool of allocations that name none. NULL: the driver must be asked.  */
static struct vcuda_pool *current[VCUDA_MAX_GPUS];
/* By GPU: stands for the default pool of a driver that has no call to name it.  */
static struct vcuda_pool *unnamed[VCUDA_MAX_GPUS];

struct vcuda_pool *
vcuda_pool_at (unsigned index)
{
  return pools[index];
}

unsigned
vcuda_pool_count (void)
{
  return __atomic_load_n (&count, __ATOMIC_ACQUIRE);
}

bool
vcuda_trim_is_asked (int gpu)
{
  static uint8_t answered[VCUDA_MAX_GPUS];
  uint8_t asked = __atomic_load_n (&vcuda_pages.limits->gpu[gpu].trim_asked, __ATOMIC_RELAXED);
  return __atomic_exchange_n (&answered[gpu], asked, __ATOMIC_RELAXED) != asked;
}

static bool
unused (const struct vcuda_pool *pool)
{
  bool kept = pool->gpu >= 0 && pool == unnamed[pool->gpu];
  return !kept && !pool->handle && !pool->charged
         && !__atomic_load_n (&pool->used, __ATOMIC_RELAXED);
}

/* With the mutex held: a record that is free, or a new one.  */
static struct vcuda_pool *
free_record (void)
{
  while (first_unused < count && !unused (pools[first_unused]))
    first_unused++;
  if (first_unused < count)
    return pools[first_unused];
  struct vcuda_pool *pool = count < MOST_POOLS ? calloc (1, sizeof *pool) : NULL;
  if (!pool)
    return NULL;
  pthread_mutex_init (&pool->mutex, NULL);
  /* What was asked before concerns no pool.  */
  for (int gpu = 0; !count && gpu < (int) vcuda_gpu_count (); gpu++)
    vcuda_trim_is_asked (gpu);
  pool->index = (uint16_t) count;
  pools[count] = pool;
  __atomic_store_n (&count, count + 1, __ATOMIC_RELEASE);
  return pool;
}

/* With the mutex held.  */
static struct vcuda_pool *
add (CUmemoryPool handle, const CUmemLocation *location, int stream_gpu)
{
  struct vcuda_pool *pool = free_record ();
  if (!pool)
    return NULL;
  pool->gpu = stream_gpu;
  pool->on_host = location->type == CU_MEM_LOCATION_TYPE_HOST
                  || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA
                  || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
    pool->gpu = vcuda_gpu_of_device (location->id);
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
    pool->gpu = vcuda_gpu_of_device (location->localized.deviceId);
  pool->reports_reserved = false;
  pool->handle = handle;
  if (handle)
    vcuda_map_put (&(struct vcuda_allocation){ .key = VCUDA_KEY (VCUDA_MEMORY_POOL, handle),
                                               .gpu = -1,
                                               .owner = VCUDA_OF_DEVICE,
                                               .pool = pool->index });
  return pool;
}

static struct vcuda_pool *
find (CUmemoryPool handle)
{
  struct vcuda_allocation entry;
  bool known = vcuda_map_find (VCUDA_KEY (VCUDA_MEMORY_POOL, handle), &entry);
  return known ? pools[entry.pool] : NULL;
}

static CUmemLocation
location_of (CUmemoryPool handle)
{
  CUmemLocation location = { 0 };
  int type = 0, id = 0;
  if (real.cuMemPoolGetAttribute (handle, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type) == CUDA_SUCCESS
      && real.cuMemPoolGetAttribute (handle, CU_MEMPOOL_ATTR_LOCATION_ID, &id) == CUDA_SUCCESS)
    {
      location.type = (CUmemLocationType) type;
      location.id = id;
    }
  return location;
}

struct vcuda_pool *
vcuda_pool_of (CUmemoryPool handle, int stream_gpu)
{
  CUmemLocation location = { 0 };
  struct vcuda_pool *pool = handle ? find (handle) : NULL;
  if (pool)
    return pool;
  if (handle)
    location = location_of (handle);
  vcuda_lock (&mutex);
  if (handle)
    pool = find (handle); /* another thread may have added it */
  else if (stream_gpu >= 0)
    pool = unnamed[stream_gpu];
  if (!pool)
    pool = add (handle, &location, stream_gpu);
  if (!handle && stream_gpu >= 0)
    unnamed[stream_gpu] = pool;
  vcuda_unlock (&mutex);
  return pool;
}

struct vcuda_pool *
vcuda_current_pool (int gpu, CUcontext context)
{
  struct vcuda_pool *pool = gpu >= 0 ? __atomic_load_n (&current[gpu], __ATOMIC_ACQUIRE) : NULL;
  if (pool)
    return pool;
  CUdevice device;
  CUmemoryPool handle = NULL;
  bool entered = vcuda_enter_context (context);
  if (real.cuCtxGetDevice (&device) != CUDA_SUCCESS
      || real.cuDeviceGetMemPool (&handle, device) != CUDA_SUCCESS)
    handle = NULL;
  vcuda_leave_context (entered);
  pool = vcuda_pool_of (handle, gpu);
  if (gpu >= 0)
    __atomic_store_n (&current[gpu], pool, __ATOMIC_RELEASE);
  return pool;
}

static void
forget_current (void)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    __atomic_store_n (&current[gpu], NULL, __ATOMIC_RELEASE);
}

#define CHANGES_CURRENT(name, parameters, arguments)                                               \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    CUresult rc = real.name arguments;                                                             \
    forget_current ();                                                                             \
    return rc;                                                                                     \
  }

CHANGES_CURRENT (cuDeviceSetMemPool, (CUdevice device, CUmemoryPool pool), (device, pool))
CHANGES_CURRENT (cuMemSetMemPool,
                 (CUmemLocation * location, CUmemAllocationType type, CUmemoryPool pool),
                 (location, type, pool))

CUresult
vcuda_cuMemPoolCreate (CUmemoryPool *pool, const CUmemPoolProps *props)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuMemPoolCreate (pool, props);
  if (rc != CUDA_SUCCESS)
    return rc;
  vcuda_lock (&mutex);
  struct vcuda_allocation ended; /* a pool that ended unseen */
  vcuda_map_take (VCUDA_KEY (VCUDA_MEMORY_POOL, *pool), &ended);
  add (*pool, &props->location, -1);
  vcuda_unlock (&mutex);
  return rc;
}

/* Allocations of the pool outlive it, and are given back one by one.  */
CUresult
vcuda_cuMemPoolDestroy (CUmemoryPool handle)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  vcuda_lock (&mutex);
  /* Taken out first: after the call the driver may give the same handle to another thread.  */
  struct vcuda_allocation name;
  bool known = vcuda_map_take (VCUDA_KEY (VCUDA_MEMORY_POOL, handle), &name);
  CUresult rc = VCUDA_CALL_DRIVER (real.cuMemPoolDestroy (handle));
  if (known && rc != CUDA_SUCCESS)
    vcuda_map_put (&name);
  else if (known)
    {
      struct vcuda_pool *pool = pools[name.pool];
      pthread_mutex_lock (&pool->mutex);
      pool->handle = NULL;
      vcuda_pool_settle_locked (pool);
      pthread_mutex_unlock (&pool->mutex);
      first_unused = pool->index < first_unused ? pool->index : first_unused;
    }
  vcuda_unlock (&mutex);
  forget_current ();
  return rc;
}

CUresult
vcuda_cuMemPoolTrimTo (CUmemoryPool handle, size_t keep)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = VCUDA_CALL_DRIVER (real.cuMemPoolTrimTo (handle, keep));
  if (rc != CUDA_SUCCESS || vcuda_thread ()->in_driver)
    return rc;
  struct vcuda_pool *pool = find (handle);
  if (pool)
    vcuda_pool_settle (pool);
  return rc;
}

void
vcuda_pools_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  count = first_unused = 0;
  vcuda_pools_keep = false;
  forget_current ();
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    unnamed[gpu] = NULL;
}
