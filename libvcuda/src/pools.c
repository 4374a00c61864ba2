/* Drivers since 13.0 tell a pool's location. For older ones what the program said when it made the
   pool is kept; a pool that it did not make is a device's own, and that device the stream's.  */

#include "pools.h"

#include <pthread.h>
#include <stdint.h>

#include "device.h"
#include "pages.h"

#define KNOWN 256

struct known
{
  CUmemoryPool pool;
  CUmemLocation location;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct known known[KNOWN];
static unsigned known_count;

static bool
remembered (CUmemoryPool pool, CUmemLocation *location)
{
  bool found = false;
  pthread_mutex_lock (&mutex);
  for (unsigned i = 0; i < known_count && !found; i++)
    if (known[i].pool == pool)
      {
        *location = known[i].location;
        found = true;
      }
  pthread_mutex_unlock (&mutex);
  return found;
}

static bool
told_by_driver (CUmemoryPool pool, CUmemLocation *location)
{
  int type = 0, id = 0;
  if (real.cuMemPoolGetAttribute (pool, CU_MEMPOOL_ATTR_LOCATION_TYPE, &type) != CUDA_SUCCESS
      || real.cuMemPoolGetAttribute (pool, CU_MEMPOOL_ATTR_LOCATION_ID, &id) != CUDA_SUCCESS)
    return false;
  location->type = (CUmemLocationType) type;
  location->id = id;
  return true;
}

int
vcuda_gpu_of_pool (CUmemoryPool pool, int stream_gpu, bool *on_host)
{
  CUmemLocation location = { 0 };
  if (!pool || (!remembered (pool, &location) && !told_by_driver (pool, &location)))
    return stream_gpu;
  *on_host = location.type == CU_MEM_LOCATION_TYPE_HOST
             || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA
             || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    return vcuda_gpu_of_device (location.id);
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
    return vcuda_gpu_of_device (location.localized.deviceId);
  return stream_gpu;
}

CUresult
vcuda_cuMemPoolCreate (CUmemoryPool *pool, const CUmemPoolProps *props)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuMemPoolCreate (pool, props);
  if (rc != CUDA_SUCCESS)
    return rc;
  pthread_mutex_lock (&mutex);
  /* When the table is full a new pool takes the place of the oldest, whose driver may still tell.
   */
  static unsigned oldest;
  unsigned at = known_count < KNOWN ? known_count++ : oldest++ % KNOWN;
  known[at] = (struct known){ *pool, props->location };
  pthread_mutex_unlock (&mutex);
  return rc;
}

CUresult
vcuda_cuMemPoolDestroy (CUmemoryPool pool)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuMemPoolDestroy (pool);
  pthread_mutex_lock (&mutex);
  for (unsigned i = 0; rc == CUDA_SUCCESS && i < known_count; i++)
    if (known[i].pool == pool)
      {
        known[i] = known[--known_count];
        break;
      }
  pthread_mutex_unlock (&mutex);
  return rc;
}

void
vcuda_pools_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
}
