/* Memory that is bound to multicast objects.  */

#include <stdlib.h>

#include "virtual/multicast.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* Whether OFFSET and BYTES are granular and lie within the bytes of WHOLE.  */
static bool
within (const struct physical *whole, size_t offset, size_t bytes)
{
  return (offset | bytes) % VMM_GRANULE == 0 && bytes && offset <= whole->bytes
         && bytes <= whole->bytes - offset;
}

void
softgpu_end_multicast (struct multicast *multicast)
{
  for (struct binding *binding; (binding = multicast->bindings) != NULL;)
    {
      multicast->bindings = binding->next;
      softgpu_physical_unuse (binding->memory, 1);
      free (binding);
    }
  free (multicast);
}

/* With the guard held. BINDING's place must be free, and its device in the team.  */
static CUresult
enter (struct multicast *multicast, struct binding *binding)
{
  REQUIRE (multicast->team & 1u << binding->device, CUDA_ERROR_INVALID_DEVICE);
  for (const struct binding *other = multicast->bindings; other; other = other->next)
    REQUIRE (other->device != binding->device || other->offset >= binding->offset + binding->bytes
                 || binding->offset >= other->offset + other->bytes,
             CUDA_ERROR_INVALID_VALUE);
  binding->next = multicast->bindings;
  multicast->bindings = binding;
  return CUDA_SUCCESS;
}

/* Binds MEMORY, which has a use for it, and on failure loses that.  */
static CUresult
bind (CUmemGenericAllocationHandle handle, size_t offset, struct physical *memory, size_t from,
      size_t bytes)
{
  struct physical *object = softgpu_find_object (handle);
  bool fits = object && within (object, offset, bytes) && within (memory, from, bytes)
              && !memory->multicast && !tile_pool (memory)
              && memory->properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  struct binding *binding = fits ? malloc (sizeof *binding) : NULL;
  CUresult rc = fits ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  if (binding)
    {
      *binding = (struct binding){
        .device = memory->properties.location.id, .offset = offset, .bytes = bytes, .memory = memory
      };
      softgpu_await_team (object->multicast);
      pthread_mutex_lock (&guard);
      rc = enter (object->multicast, binding);
      pthread_mutex_unlock (&guard);
    }
  if (object)
    softgpu_physical_unuse (object, 1);
  if (rc != CUDA_SUCCESS)
    {
      free (binding);
      softgpu_physical_unuse (memory, 1);
    }
  return rc;
}

CUresult
cuMulticastBindMem (CUmemGenericAllocationHandle handle, size_t offset,
                    CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                    unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (flags == 0, CUDA_ERROR_INVALID_VALUE);
  struct physical *physical = softgpu_physical (memory);
  REQUIRE (physical, CUDA_ERROR_INVALID_VALUE);
  return bind (handle, offset, physical, from, bytes);
}

CUresult
cuMulticastBindMem_v2 (CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset,
                       CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                       unsigned long long flags)
{
  REQUIRE_VALID_DEVICE (dev);
  struct physical *physical = softgpu_physical (memory);
  bool there = physical && physical->properties.location.id == dev;
  CUresult rc = there ? cuMulticastBindMem (handle, offset, memory, from, bytes, flags)
                      : CUDA_ERROR_INVALID_VALUE;
  if (physical)
    softgpu_physical_unuse (physical, 1);
  return rc;
}

/* The allocation that BYTES from START on are mapped to, with one more use; NULL where they are not
   all of one.  */
static struct physical *
find_mapped (CUdeviceptr start, size_t bytes)
{
  struct block block;
  struct physical *found = NULL;
  for (CUdeviceptr at = start; at - start < bytes; at = block.start + block.bytes)
    {
      if (!softgpu_find_block (at, &block) || block.where != WINDOW || !block.owner
          || (found && block.owner != found))
        return NULL;
      found = block.owner;
    }
  if (!found || found->kind != PHYSICAL || bytes > found->bytes)
    return NULL;
  softgpu_physical_use (found, 1);
  return found;
}

CUresult
cuMulticastBindAddr (CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr start,
                     size_t bytes, unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (flags == 0 && start % VMM_GRANULE == 0 && bytes <= SIZE_MAX - start,
           CUDA_ERROR_INVALID_VALUE);
  struct physical *memory = find_mapped (start, bytes);
  REQUIRE (memory, CUDA_ERROR_INVALID_VALUE);
  return bind (handle, offset, memory, 0, bytes);
}

CUresult
cuMulticastBindAddr_v2 (CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset,
                        CUdeviceptr start, size_t bytes, unsigned long long flags)
{
  REQUIRE_VALID_DEVICE (dev);
  struct block block;
  REQUIRE (softgpu_find_block (start, &block) && block.device == dev, CUDA_ERROR_INVALID_VALUE);
  return cuMulticastBindAddr (handle, offset, start, bytes, flags);
}

/* What was bound by one call is unbound by one.  */
CUresult
cuMulticastUnbind (CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset, size_t bytes)
{
  REQUIRE_VALID_DEVICE (dev);
  struct physical *object = softgpu_find_object (handle);
  REQUIRE (object, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  struct binding *found = object->multicast->bindings;
  while (found && (found->device != dev || found->offset != offset || found->bytes != bytes))
    found = found->next;
  UNLINK (object->multicast->bindings, found, next)
  pthread_mutex_unlock (&guard);
  softgpu_physical_unuse (object, 1);
  REQUIRE (found, CUDA_ERROR_INVALID_VALUE);
  softgpu_physical_unuse (found->memory, 1);
  free (found);
  return CUDA_SUCCESS;
}
