/* Multicast objects, and the devices of their teams. A team is of this process: the handle of an
   object cannot be exported.  */

#include <stdlib.h>

#include "virtual/multicast.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t device_added = PTHREAD_COND_INITIALIZER;

struct physical *
softgpu_find_object (CUmemGenericAllocationHandle handle)
{
  struct physical *object = softgpu_physical (handle);
  if (!object || object->multicast)
    return object;
  softgpu_physical_unuse (object, 1);
  return NULL;
}

static CUresult
check (const CUmulticastObjectProp *properties)
{
  REQUIRE (multicast_supported (), CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (properties && properties->numDevices >= 2 && properties->size && !properties->flags,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!properties->handleTypes, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (properties->numDevices <= (unsigned) driver.device_count, CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

CUresult
cuMulticastGetGranularity (size_t *granularity, const CUmulticastObjectProp *properties,
                           CUmulticastGranularity_flags option)
{
  REQUIRE_DRIVER ();
  REQUIRE (granularity && (unsigned) option <= CU_MULTICAST_GRANULARITY_RECOMMENDED,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (check (properties));
  *granularity = VMM_GRANULE;
  return CUDA_SUCCESS;
}

CUresult
cuMulticastCreate (CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *properties)
{
  REQUIRE_DRIVER ();
  REQUIRE (handle, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (check (properties));
  REQUIRE (properties->size % VMM_GRANULE == 0, CUDA_ERROR_INVALID_VALUE);
  struct multicast *multicast = calloc (1, sizeof *multicast);
  REQUIRE (multicast, CUDA_ERROR_OUT_OF_MEMORY);
  multicast->wanted = properties->numDevices;
  struct physical *object = softgpu_new_physical (&(struct physical){
      .bytes = properties->size, .device = -1, .fd = -1, .multicast = multicast });
  if (!object)
    {
      free (multicast);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *handle = (CUmemGenericAllocationHandle) object;
  return CUDA_SUCCESS;
}

CUresult
cuMulticastAddDevice (CUmemGenericAllocationHandle handle, CUdevice dev)
{
  REQUIRE_VALID_DEVICE (dev);
  struct physical *object = softgpu_find_object (handle);
  REQUIRE (object, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  struct multicast *multicast = object->multicast;
  bool joins = !(multicast->team & 1u << dev)
               && (unsigned) __builtin_popcount (multicast->team) < multicast->wanted;
  if (joins)
    multicast->team |= 1u << dev;
  pthread_cond_broadcast (&device_added);
  pthread_mutex_unlock (&guard);
  softgpu_physical_unuse (object, 1);
  return joins ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void
softgpu_await_team (struct multicast *multicast)
{
  pthread_mutex_lock (&guard);
  while ((unsigned) __builtin_popcount (multicast->team) < multicast->wanted)
    pthread_cond_wait (&device_added, &guard);
  pthread_mutex_unlock (&guard);
}
