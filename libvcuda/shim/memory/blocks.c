/* cuMemCreate: memory that lives while it has a handle, is mapped, or is bound to an array or a
   multicast object (bindings.c). Programs map and release the handle at once, so all are counted,
   and the charge ends with the last of them. Multicast objects and imported memory have handles and
   mappings too, but are not charged: their gpu is -1.

   Blocks and mappings are found in two balanced trees (tsearch): programs keep tens of thousands.
 */

#include "memory/blocks.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "allocate/sparse_arrays.h"
#include "memory/bindings.h"
#include "memory/charge.h"
#include "memory/compare.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "thread/in_driver.h"

struct vcuda_block
{
  CUmemGenericAllocationHandle handle;
  uint64_t bytes;
  int gpu;
  unsigned handles, uses; /* mapped, or bound */
};

struct mapping
{
  CUdeviceptr start;
  size_t bytes;
  struct vcuda_block *block;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *blocks;   /* by handle */
static void *mappings; /* by start */
static uint64_t held[VCUDA_MAX_GPUS];

static int
by_handle (const void *one, const void *other)
{
  return vcuda_compare (((const struct vcuda_block *) one)->handle,
                        ((const struct vcuda_block *) other)->handle);
}

static int
by_start (const void *one, const void *other)
{
  return vcuda_compare (((const struct mapping *) one)->start,
                        ((const struct mapping *) other)->start);
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

/* Equal is the mapping that ADDRESS, which has a start only, lies in.  */
static int
by_address (const void *address, const void *mapping)
{
  CUdeviceptr wanted = ((const struct mapping *) address)->start;
  const struct mapping *here = mapping;
  if (wanted < here->start)
    return -1;
  return wanted - here->start < here->bytes ? 0 : 1;
}

static struct vcuda_block *
find (CUmemGenericAllocationHandle handle)
{
  struct vcuda_block **node = tfind (&(struct vcuda_block){ .handle = handle }, &blocks, by_handle);
  return node ? *node : NULL;
}

static void
end_if_unused (struct vcuda_block *block)
{
  if (block->handles || block->uses)
    return;
  tdelete (block, &blocks, by_handle);
  if (block->gpu >= 0)
    {
      __atomic_fetch_sub (&held[block->gpu], block->bytes, __ATOMIC_RELAXED);
      vcuda_give_back (block->gpu, block->bytes);
    }
  else
    vcuda_bindings_end (block->handle);
  free (block);
}

void
vcuda_blocks_lock (void)
{
  vcuda_lock (&mutex);
}

void
vcuda_blocks_unlock (void)
{
  vcuda_unlock (&mutex);
}

struct vcuda_block *
vcuda_block_use (CUmemGenericAllocationHandle handle)
{
  struct vcuda_block *block = find (handle);
  if (block)
    block->uses++;
  return block;
}

struct vcuda_block *
vcuda_block_use_at (CUdeviceptr address, CUdeviceptr *end)
{
  struct mapping **node = tfind (&(struct mapping){ .start = address }, &mappings, by_address);
  if (!node)
    return NULL;
  *end = (*node)->start + (*node)->bytes;
  (*node)->block->uses++;
  return (*node)->block;
}

int
vcuda_block_gpu (const struct vcuda_block *block)
{
  return block->gpu;
}

void
vcuda_block_unuse (struct vcuda_block *block)
{
  block->uses--;
  end_if_unused (block);
}

void
vcuda_block_enter (CUmemGenericAllocationHandle handle)
{
  struct vcuda_block *block = find (handle);
  if (block)
    block->handles++;
  else if ((block = malloc (sizeof *block)))
    {
      *block = (struct vcuda_block){ .handle = handle, .gpu = -1, .handles = 1 };
      if (!tsearch (block, &blocks, by_handle))
        free (block);
    }
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
  struct vcuda_block *block = malloc (sizeof *block);
  vcuda_lock (&mutex);
  rc = block ? VCUDA_WITHIN (real.cuMemCreate (handle, bytes, prop, flags))
             : CUDA_ERROR_OUT_OF_MEMORY;
  if (rc == CUDA_SUCCESS)
    {
      *block = (struct vcuda_block){ .handle = *handle, .bytes = bytes, .gpu = gpu, .handles = 1 };
      /* Without host memory to remember it the charge stays until the process ends.  */
      tsearch (block, &blocks, by_handle);
      __atomic_fetch_add (&held[gpu], bytes, __ATOMIC_RELAXED);
    }
  else
    free (block);
  vcuda_unlock (&mutex);
  if (rc != CUDA_SUCCESS)
    vcuda_give_back (gpu, bytes);
  return rc;
}

CUresult
vcuda_cuMemRelease (CUmemGenericAllocationHandle handle)
{
  VCUDA_PASS_ON (real.cuMemRelease (handle));
  vcuda_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemRelease (handle));
  struct vcuda_block *block = rc == CUDA_SUCCESS ? find (handle) : NULL;
  if (block && block->handles)
    {
      block->handles--;
      end_if_unused (block);
    }
  vcuda_unlock (&mutex);
  return rc;
}

CUresult
vcuda_cuMemImportFromShareableHandle (CUmemGenericAllocationHandle *handle, void *shareable,
                                      CUmemAllocationHandleType type)
{
  VCUDA_PASS_ON (real.cuMemImportFromShareableHandle (handle, shareable, type));
  vcuda_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemImportFromShareableHandle (handle, shareable, type));
  if (rc == CUDA_SUCCESS)
    vcuda_block_enter (*handle);
  vcuda_unlock (&mutex);
  return rc;
}

CUresult
vcuda_cuMemRetainAllocationHandle (CUmemGenericAllocationHandle *handle, void *address)
{
  VCUDA_PASS_ON (real.cuMemRetainAllocationHandle (handle, address));
  vcuda_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemRetainAllocationHandle (handle, address));
  struct vcuda_block *block = rc == CUDA_SUCCESS ? find (*handle) : NULL;
  if (block)
    block->handles++;
  vcuda_unlock (&mutex);
  return rc;
}

/* Remembers MAPPING, in place of one that ended in a way that the shim does not see.  */
static void
remember (struct mapping *mapping)
{
  struct mapping **node = tsearch (mapping, &mappings, by_start);
  mapping->block->uses++;
  if (!node)
    free (mapping); /* the charge stays until the process ends */
  if (!node || *node == mapping)
    return;
  struct mapping *ended = *node;
  *node = mapping;
  ended->block->uses--;
  end_if_unused (ended->block);
  free (ended);
}

CUresult
vcuda_cuMemMap (CUdeviceptr start, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                unsigned long long flags)
{
  VCUDA_PASS_ON (real.cuMemMap (start, bytes, offset, handle, flags));
  struct mapping *mapping = malloc (sizeof *mapping);
  if (!mapping)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vcuda_lock (&mutex);
  struct vcuda_block *block = find (handle);
  /* The driver waits until all devices are added to a multicast object, so no lock is held.  */
  bool may_wait = block && block->gpu < 0;
  if (may_wait)
    {
      block->uses++;
      vcuda_unlock (&mutex);
    }
  CUresult rc = VCUDA_WITHIN (real.cuMemMap (start, bytes, offset, handle, flags));
  if (may_wait)
    vcuda_lock (&mutex);
  *mapping = (struct mapping){ start, bytes, block };
  if (rc == CUDA_SUCCESS && block)
    remember (mapping);
  else
    free (mapping);
  if (may_wait)
    vcuda_block_unuse (block);
  vcuda_unlock (&mutex);
  return rc;
}

CUresult
vcuda_cuMemUnmap (CUdeviceptr start, size_t bytes)
{
  VCUDA_PASS_ON (real.cuMemUnmap (start, bytes));
  vcuda_lock (&mutex);
  CUresult rc = VCUDA_WITHIN (real.cuMemUnmap (start, bytes));
  /* One call may undo many mappings, and never a part of one.  */
  const struct mapping range = { .start = start, .bytes = bytes };
  struct mapping **node;
  while (rc == CUDA_SUCCESS && (node = tfind (&range, &mappings, by_range)) != NULL)
    {
      struct mapping *unmapped = *node;
      tdelete (unmapped, &mappings, by_start);
      unmapped->block->uses--;
      end_if_unused (unmapped->block);
      free (unmapped);
    }
  vcuda_unlock (&mutex);
  return rc;
}

/* Takes no lock: a charge that is made under it may need this sum.  */
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
  vcuda_bindings_forget ();
  vcuda_sparse_arrays_forget ();
}
