/* cuMemCreate: memory that lives while it has a handle or is mapped. Programs map and release the
   handle at once, so both are counted, and the charge ends with the last of them.

   Blocks and mappings are found in two balanced trees (tsearch): programs keep tens of thousands.
 */

#include "virtual_memory.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "charge.h"
#include "device.h"
#include "inside.h"
#include "pages.h"

struct block
{
  CUmemGenericAllocationHandle handle;
  uint64_t bytes;
  int gpu;
  unsigned handles, mappings;
};

struct mapping
{
  CUdeviceptr start;
  size_t bytes;
  struct block *block;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *blocks;   /* by handle */
static void *mappings; /* by start */
static uint64_t held[VCUDA_MAX_GPUS];

static int
by_handle (const void *one, const void *other)
{
  CUmemGenericAllocationHandle left = ((const struct block *) one)->handle;
  CUmemGenericAllocationHandle right = ((const struct block *) other)->handle;
  return (left > right) - (left < right);
}

static int
by_start (const void *one, const void *other)
{
  CUdeviceptr left = ((const struct mapping *) one)->start;
  CUdeviceptr right = ((const struct mapping *) other)->start;
  return (left > right) - (left < right);
}

/* Equal is each mapping that starts within RANGE.  */
static int
by_range (const void *range, const void *mapping)
{
  CUdeviceptr start = ((const struct mapping *) mapping)->start;
  const struct mapping *wanted = range;
  if (start < wanted->start)
    return 1;
  return start - wanted->start < wanted->bytes ? 0 : -1;
}

static struct block *
find (CUmemGenericAllocationHandle handle)
{
  struct block **node = tfind (&(struct block){ .handle = handle }, &blocks, by_handle);
  return node ? *node : NULL;
}

static void
end_if_unused (struct block *block)
{
  if (block->handles || block->mappings)
    return;
  tdelete (block, &blocks, by_handle);
  __atomic_fetch_sub (&held[block->gpu], block->bytes, __ATOMIC_RELAXED);
  vcuda_give_back (block->gpu, block->bytes);
  free (block);
}

CUresult
vcuda_cuMemCreate (CUmemGenericAllocationHandle *handle, size_t bytes,
                   const CUmemAllocationProp *prop, unsigned long long flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUdevice device = -1;
  if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    device = prop->location.id;
  else if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
    device = prop->location.localized.deviceId;
  if (vcuda_thread ()->in_driver || device < 0)
    return real.cuMemCreate (handle, bytes, prop, flags); /* host memory, or an error */
  int gpu = vcuda_gpu_of_device (device);
  CUresult rc = vcuda_reserve (gpu, bytes);
  if (rc != CUDA_SUCCESS)
    return rc;
  struct block *block = malloc (sizeof *block);
  pthread_mutex_lock (&mutex);
  rc = block ? VCUDA_WITHIN (real.cuMemCreate (handle, bytes, prop, flags))
             : CUDA_ERROR_OUT_OF_MEMORY;
  if (rc == CUDA_SUCCESS)
    {
      *block = (struct block){ .handle = *handle, .bytes = bytes, .gpu = gpu, .handles = 1 };
      /* Without host memory to remember it the charge stays until the process ends.  */
      tsearch (block, &blocks, by_handle);
      __atomic_fetch_add (&held[gpu], bytes, __ATOMIC_RELAXED);
    }
  else
    free (block);
  pthread_mutex_unlock (&mutex);
  if (rc != CUDA_SUCCESS)
    vcuda_give_back (gpu, bytes);
  return rc;
}

CUresult
vcuda_cuMemRelease (CUmemGenericAllocationHandle handle)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  pthread_mutex_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemRelease (handle));
  struct block *block = rc == CUDA_SUCCESS ? find (handle) : NULL;
  if (block && block->handles)
    {
      block->handles--;
      end_if_unused (block);
    }
  pthread_mutex_unlock (&mutex);
  return rc;
}

CUresult
vcuda_cuMemRetainAllocationHandle (CUmemGenericAllocationHandle *handle, void *address)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  pthread_mutex_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemRetainAllocationHandle (handle, address));
  struct block *block = rc == CUDA_SUCCESS ? find (*handle) : NULL;
  if (block)
    block->handles++;
  pthread_mutex_unlock (&mutex);
  return rc;
}

/* Remembers MAPPING, in place of one that ended in a way that the shim does not see.  */
static void
remember (struct mapping *mapping)
{
  struct mapping **node = tsearch (mapping, &mappings, by_start);
  mapping->block->mappings++;
  if (!node)
    free (mapping); /* the charge stays until the process ends */
  if (!node || *node == mapping)
    return;
  struct mapping *ended = *node;
  *node = mapping;
  ended->block->mappings--;
  end_if_unused (ended->block);
  free (ended);
}

CUresult
vcuda_cuMemMap (CUdeviceptr start, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                unsigned long long flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  struct mapping *mapping = malloc (sizeof *mapping);
  if (!mapping)
    return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemMap (start, bytes, offset, handle, flags));
  struct block *block = rc == CUDA_SUCCESS ? find (handle) : NULL;
  *mapping = (struct mapping){ start, bytes, block };
  if (block)
    remember (mapping);
  else
    free (mapping);
  pthread_mutex_unlock (&mutex);
  return rc;
}

CUresult
vcuda_cuMemUnmap (CUdeviceptr start, size_t bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  pthread_mutex_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemUnmap (start, bytes));
  /* One call may undo many mappings, and never a part of one.  */
  const struct mapping range = { .start = start, .bytes = bytes };
  struct mapping **node;
  while (rc == CUDA_SUCCESS && (node = tfind (&range, &mappings, by_range)) != NULL)
    {
      struct mapping *gone = *node;
      tdelete (gone, &mappings, by_start);
      gone->block->mappings--;
      end_if_unused (gone->block);
      free (gone);
    }
  pthread_mutex_unlock (&mutex);
  return rc;
}

/* No lock: whoever asks may be within a charge that is made here.  */
void
vcuda_virtual_memory_held (uint64_t *bytes)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    bytes[gpu] += __atomic_load_n (&held[gpu], __ATOMIC_RELAXED);
}

void
vcuda_virtual_memory_forget (void)
{
  memset (held, 0, sizeof held);
  pthread_mutex_init (&mutex, NULL);
  blocks = mappings = NULL; /* the parent's, perhaps half changed */
}
