/* cuMemCreate: memory that lives while it has a handle or is mapped. Programs map and release the
   handle at once, so both are counted, and the charge ends with the last of them.  */

#include "virtual_memory.h"

#include <pthread.h>
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
  CUmemGenericAllocationHandle handle;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static size_t block_count, block_room;
static struct mapping *mappings;
static size_t mapping_count, mapping_room;
static uint64_t held[VCUDA_MAX_GPUS];

/* Room for one more of SIZE bytes each; false without host memory.  */
static bool
make_room (void **list, size_t count, size_t *room, size_t size)
{
  if (count < *room)
    return true;
  size_t wider = *room ? *room * 2 : 64;
  void *moved = realloc (*list, wider * size);
  if (!moved)
    return false;
  *list = moved;
  *room = wider;
  return true;
}

static struct block *
find (CUmemGenericAllocationHandle handle)
{
  for (size_t i = 0; i < block_count; i++)
    if (blocks[i].handle == handle)
      return &blocks[i];
  return NULL;
}

static void
end_if_unused (struct block *block)
{
  if (block->handles || block->mappings)
    return;
  struct block gone = *block;
  *block = blocks[--block_count];
  __atomic_fetch_sub (&held[gone.gpu], gone.bytes, __ATOMIC_RELAXED);
  vcuda_give_back (gone.gpu, gone.bytes);
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
  if (vcuda_inside || device < 0)
    return real.cuMemCreate (handle, bytes, prop, flags); /* host memory, or an error */
  int gpu = vcuda_gpu_of_device (device);
  CUresult rc = vcuda_reserve (gpu, bytes);
  if (rc != CUDA_SUCCESS)
    return rc;
  pthread_mutex_lock (&mutex);
  rc = CUDA_ERROR_OUT_OF_MEMORY;
  if (make_room ((void **) &blocks, block_count, &block_room, sizeof *blocks))
    rc = VCUDA_WITHIN (real.cuMemCreate (handle, bytes, prop, flags));
  if (rc == CUDA_SUCCESS)
    {
      blocks[block_count++]
          = (struct block){ .handle = *handle, .bytes = bytes, .gpu = gpu, .handles = 1 };
      __atomic_fetch_add (&held[gpu], bytes, __ATOMIC_RELAXED);
    }
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

CUresult
vcuda_cuMemMap (CUdeviceptr start, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                unsigned long long flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  pthread_mutex_lock (&mutex);
  CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
  if (make_room ((void **) &mappings, mapping_count, &mapping_room, sizeof *mappings))
    rc = VCUDA_WITHIN (real.cuMemMap (start, bytes, offset, handle, flags));
  struct block *block = rc == CUDA_SUCCESS ? find (handle) : NULL;
  if (block)
    {
      block->mappings++;
      mappings[mapping_count++] = (struct mapping){ start, bytes, handle };
    }
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
  for (size_t i = 0; rc == CUDA_SUCCESS && i < mapping_count;)
    {
      struct mapping gone = mappings[i];
      if (gone.start < start || gone.start - start >= bytes)
        {
          i++;
          continue;
        }
      mappings[i] = mappings[--mapping_count];
      struct block *block = find (gone.handle);
      if (block && block->mappings)
        {
          block->mappings--;
          end_if_unused (block);
        }
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
  blocks = NULL;
  mappings = NULL;
  block_count = block_room = mapping_count = mapping_room = 0;
}
