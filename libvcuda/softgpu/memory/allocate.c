/* Allocates blocks of memory, and counts them to the byte.

   Device memory is memory of the process, which the kernel fills on first touch, so that any size
   up to the GPU's is cheap; a device pointer is its address. Drivers with custom storage have it in
   files, which another process can map: see parts.h. What a GPU's memory holds is counted to the
   byte, as each process's figure in its slot.  */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/account.h"
#include "memory/block.h"
#include "memory/parts.h"
#include "memory/store.h"

bool
softgpu_charge_locked (CUdevice device, uint64_t bytes)
{
  unsigned gpu = gpu_index (device);
  struct softgpu_slot *own = softgpu_own_slot (&driver.tie);
  const struct softgpu_slot_gpu *use = &own->gpu[gpu];
  if (use->pinned_bytes
      && (use->held_bytes > use->pinned_bytes || bytes > use->pinned_bytes - use->held_bytes))
    return false;
  if (!softgpu_has_room (driver.tie.state, gpu, own->pid_namespace, bytes))
    {
      softgpu_reap (&driver.tie);
      if (!softgpu_has_room (driver.tie.state, gpu, own->pid_namespace, bytes))
        return false;
    }
  own->gpu[gpu].held_bytes += bytes;
  return true;
}

bool
softgpu_charge (CUdevice device, uint64_t bytes)
{
  softgpu_progress ();
  softgpu_lock (&driver.tie);
  bool fits = softgpu_charge_locked (device, bytes);
  softgpu_unlock (&driver.tie);
  return fits;
}

void
softgpu_uncharge (CUdevice device, uint64_t bytes)
{
  softgpu_own_slot (&driver.tie)->gpu[gpu_index (device)].held_bytes -= bytes;
}

/* False when POOL, or where that is NULL DEVICE, has not so much. Of managed memory there is as
   much as the host has.  */
static bool
take (CUdevice device, enum where where, uint64_t bytes, CUmemoryPool pool)
{
  if (pool)
    return softgpu_pool_take (pool, bytes);
  if (where == MANAGED)
    softgpu_own_slot (&driver.tie)->gpu[gpu_index (device)].managed_bytes += bytes;
  return where != ON_DEVICE || softgpu_charge (device, bytes);
}

static void
give_back (CUdevice device, enum where where, uint64_t bytes, CUmemoryPool pool)
{
  if (pool)
    softgpu_pool_return (pool, bytes);
  else if (where == MANAGED)
    softgpu_own_slot (&driver.tie)->gpu[gpu_index (device)].managed_bytes -= bytes;
  else if (where == ON_DEVICE)
    softgpu_uncharge (device, bytes);
}

static struct block *
take_large (size_t bytes, CUdevice device, enum where where)
{
  if (bytes > SIZE_MAX / 2)
    return NULL;
  size_t mapped = STORE_WHOLE (bytes);
  struct block *block = malloc (sizeof *block);
  if (!block)
    return NULL;
  *block = (struct block){ .mapped = mapped, .fd = -1 };
  void *map = where == ON_DEVICE
                  ? softgpu_map_part (device, mapped, NULL, &block->fd, &block->offset)
                  : softgpu_map (-1, 0, mapped, NULL, PROT_READ | PROT_WRITE);
  block->start = (uintptr_t) map;
  if (!map)
    free (block);
  return map ? block : NULL;
}

void
softgpu_discard (struct block *block)
{
  give_back (block->device, block->where, block->bytes, block->pool);
  if (block->where == OF_GRAPH)
    softgpu_graph_memory_freed (block->owner);
  if (block->where != OF_GRAPH && block->where != WINDOW && block->where != REGISTERED
      && !block->mapped)
    {
      softgpu_return_small (block);
      return;
    }
  if (block->mapped)
    munmap ((void *) (block->start & ~(STORE_PAGE - 1)), block->mapped);
  if (block->fd >= 0 && (block->where == ON_DEVICE || block->where == OF_GRAPH))
    {
      softgpu_unlist_part (block->fd, block->offset);
      softgpu_store_drop (block->offset, STORE_WHOLE (block->bytes));
    }
  free (block);
}

CUresult
softgpu_allocate (uintptr_t *address, size_t bytes, enum where where, unsigned flags,
                  CUmemoryPool pool)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (address && bytes, CUDA_ERROR_INVALID_VALUE);
  CUdevice device = pool ? pool->device : context->device;
  REQUIRE (take (device, where, bytes, pool), CUDA_ERROR_OUT_OF_MEMORY);
  struct block *block = bytes <= LARGEST_SMALL ? softgpu_take_small (bytes, device, where)
                                               : take_large (bytes, device, where);
  if (!block)
    {
      give_back (device, where, bytes, pool);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  block->bytes = bytes;
  block->context = context;
  block->device = device;
  block->where = where;
  block->flags = flags;
  block->pool = pool;
  block->owner = NULL;
  if (!softgpu_insert (block))
    {
      softgpu_discard (block);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *address = block->start;
  return CUDA_SUCCESS;
}

CUresult
softgpu_release (uintptr_t address, enum softgpu_kind_set kinds)
{
  REQUIRE_DRIVER ();
  return softgpu_remove_block (address, kinds, NULL) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool
softgpu_make_shared (struct block *block)
{
  int fd = softgpu_store ();
  if (fd < 0)
    return false;
  if (block->fd >= 0 || !block->mapped) /* small blocks lie in the store already */
    {
      block->fd = fd;
      return true;
    }
  uint64_t offset = softgpu_store_range (block->mapped);
  void *there = softgpu_map (fd, offset, block->mapped, NULL, PROT_READ | PROT_WRITE);
  if (!there)
    return false;
  memcpy (there, (void *) block->start, block->bytes);
  munmap (there, block->mapped);
  if (!softgpu_map (fd, offset, block->mapped, (void *) block->start, PROT_READ | PROT_WRITE))
    return false;
  block->fd = fd;
  block->offset = offset;
  return true;
}
