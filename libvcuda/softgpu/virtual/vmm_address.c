/* Virtual memory management: ranges of addresses, and what they show.  */

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "memory/store.h"
#include "virtual/vmm.h"

struct range
{
  uintptr_t start;
  size_t bytes;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static void *ranges; /* a tsearch tree by address */
static _Atomic unsigned range_count;

static int
by_address (const void *left, const void *right)
{
  const struct range *a = left, *b = right;
  if (a->start + a->bytes <= b->start)
    return -1;
  return a->start >= b->start + b->bytes;
}

/* With the guard held.  */
static struct range *
around (uintptr_t address)
{
  struct range key = { .start = address, .bytes = 1 };
  struct range **node = tfind (&key, &ranges, by_address);
  return node ? *node : NULL;
}

bool
softgpu_reserved (uintptr_t address)
{
  if (!range_count)
    return false;
  pthread_mutex_lock (&guard);
  bool reserved = around (address) != NULL;
  pthread_mutex_unlock (&guard);
  return reserved;
}

static bool
granular (uintptr_t address, size_t bytes)
{
  return address && bytes && address % VMM_GRANULE == 0 && bytes % VMM_GRANULE == 0
         && bytes <= UINTPTR_MAX - address;
}

/* A hole of BYTES at a multiple of ALIGNMENT: at HINT if that is free, else where there is room. */
static void *
find_hole (uintptr_t hint, size_t bytes, size_t alignment)
{
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (hint)
    {
      void *map = mmap ((void *) hint, bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
      if (map != MAP_FAILED && (uintptr_t) map == hint)
        return map;
      if (map != MAP_FAILED)
        munmap (map, bytes);
    }
  char *map = mmap (NULL, bytes + alignment, PROT_NONE, flags, -1, 0);
  if (map == MAP_FAILED)
    return NULL;
  size_t before = (alignment - (uintptr_t) map % alignment) % alignment;
  if (before)
    munmap (map, before);
  munmap (map + before + bytes, alignment - before);
  return map + before;
}

CUresult
cuMemAddressReserve (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                     unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (ptr && size && size % VMM_GRANULE == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE ((alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
  if (alignment < VMM_GRANULE)
    alignment = VMM_GRANULE;
  REQUIRE (size <= SIZE_MAX / 4 && alignment <= SIZE_MAX / 4, CUDA_ERROR_OUT_OF_MEMORY);
  struct range *range = malloc (sizeof *range);
  void *hole = range ? find_hole (addr % alignment ? 0 : addr, size, alignment) : NULL;
  bool kept = false;
  if (hole)
    {
      *range = (struct range){ .start = (uintptr_t) hole, .bytes = size };
      pthread_mutex_lock (&guard);
      kept = tsearch (range, &ranges, by_address) != NULL;
      range_count += kept;
      pthread_mutex_unlock (&guard);
      if (!kept)
        munmap (hole, size);
    }
  if (!kept)
    {
      free (range);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *ptr = (CUdeviceptr) hole;
  return CUDA_SUCCESS;
}

CUresult
cuMemAddressFree (CUdeviceptr ptr, size_t size)
{
  REQUIRE_DRIVER ();
  REQUIRE (granular (ptr, size), CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  struct range *range = around (ptr);
  bool whole
      = range && range->start == ptr && range->bytes == size && !softgpu_any_block (ptr, size);
  if (whole)
    {
      tdelete (range, &ranges, by_address);
      range_count--;
      munmap ((void *) ptr, size);
      free (range);
    }
  pthread_mutex_unlock (&guard);
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuMemMap (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
          unsigned long long flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (granular (ptr, size) && offset % VMM_GRANULE == 0 && flags == 0,
           CUDA_ERROR_INVALID_VALUE);
  struct physical *physical = softgpu_physical (handle);
  REQUIRE (physical, CUDA_ERROR_INVALID_VALUE);
  if (physical->multicast)
    softgpu_await_team (physical->multicast);
  CUresult rc = CUDA_ERROR_INVALID_VALUE;
  struct block block = { .start = ptr,
                         .bytes = size,
                         .device = physical->properties.location.id,
                         .where = WINDOW,
                         .fd = -1,
                         .owner = physical,
                         .for_kernels = physical->multicast != NULL };
  pthread_mutex_lock (&guard);
  struct range *range = around (ptr);
  if (range && size <= range->bytes - (ptr - range->start) && !tile_pool (physical)
      && offset <= physical->bytes && size <= physical->bytes - offset
      && !softgpu_any_block (ptr, size))
    {
      rc = CUDA_ERROR_OUT_OF_MEMORY;
      if (softgpu_map (physical->fd, physical->offset + offset, size, (void *) ptr, PROT_NONE)
          && softgpu_add_block (&block))
        rc = CUDA_SUCCESS;
    }
  pthread_mutex_unlock (&guard);
  if (rc != CUDA_SUCCESS)
    softgpu_physical_unuse (physical, 1);
  return rc;
}

/* Whether mappings fill BYTES from ADDRESS on; WHOLE: and none goes beyond.  */
static bool
filled (uintptr_t address, size_t bytes, bool whole)
{
  uintptr_t end = address + bytes;
  struct block block;
  while (address < end)
    {
      if (!softgpu_find_block (address, &block) || block.where != WINDOW || !block.owner
          || ((struct physical *) block.owner)->kind != PHYSICAL)
        return false;
      uintptr_t next = block.start + block.bytes;
      if (whole && (block.start != address || next > end))
        return false;
      address = next;
    }
  return true;
}

CUresult
cuMemUnmap (CUdeviceptr ptr, size_t size)
{
  REQUIRE_DRIVER ();
  REQUIRE (granular (ptr, size), CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock (&guard);
  bool whole = filled (ptr, size, true);
  for (uintptr_t at = ptr; whole && at < ptr + size;)
    {
      struct block block;
      softgpu_remove_block (at, WINDOWS, &block);
      softgpu_map (-1, 0, block.bytes, (void *) at, PROT_NONE);
      softgpu_physical_unuse (block.owner, 1);
      at += block.bytes;
    }
  pthread_mutex_unlock (&guard);
  return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Where a block's access has LOCATION's bits: the host's are behind the last device's.  */
static int
access_place (const CUmemLocation *location)
{
  return location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : SOFTGPU_MAX_GPUS;
}

CUresult
cuMemSetAccess (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
  REQUIRE_DRIVER ();
  REQUIRE (granular (ptr, size) && desc && count, CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < count; i++)
    {
      unsigned flags = (unsigned) desc[i].flags;
      REQUIRE (flags != 2 && flags <= CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
      if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        REQUIRE (valid_device (desc[i].location.id), CUDA_ERROR_INVALID_DEVICE);
    }
  pthread_mutex_lock (&guard);
  bool mapped = filled (ptr, size, false);
  for (size_t i = 0; mapped && i < count; i++)
    softgpu_set_access (ptr, size, access_place (&desc[i].location), (unsigned) desc[i].flags);
  pthread_mutex_unlock (&guard);
  return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuMemGetAccess (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
  REQUIRE_DRIVER ();
  struct block block;
  REQUIRE (flags && location && softgpu_find_block (ptr, &block) && block.where == WINDOW,
           CUDA_ERROR_INVALID_VALUE);
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
    REQUIRE (valid_device (location->id), CUDA_ERROR_INVALID_DEVICE);
  *flags = block.access >> 2 * access_place (location) & 3;
  return CUDA_SUCCESS;
}
