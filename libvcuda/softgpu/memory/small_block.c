/* Small blocks, by class: a mapping for each would cost microseconds where a driver takes some
   hundred nanoseconds.  */

#include <stdlib.h>
#include <sys/mman.h>

#include "memory/block.h"
#include "memory/parts.h"
#include "memory/store.h"

enum
{
  ALIGNMENT = 512, /* what CUDA promises is 256 */
  CLASSES = 8,     /* 512 bytes to 64 KiB */
  SLAB = 256 << 10,
};

_Static_assert (ALIGNMENT << (CLASSES - 1) == LARGEST_SMALL, "the last class is the largest");

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

/* Where device memory is listed, each device has slabs of its own.  */
static struct small
{
  struct block *unused[CLASSES];
  uintptr_t next; /* in the slab */
  size_t left;
  uint64_t offset;
} of_host, of_device[SOFTGPU_MAX_GPUS];

static struct small *
small_of (CUdevice device, enum where where)
{
  return where == ON_DEVICE && softgpu_lists_parts () ? &of_device[device] : &of_host;
}

static unsigned
class_of (size_t bytes)
{
  return bytes <= ALIGNMENT ? 0 : 64 - (unsigned) __builtin_clzll ((bytes - 1) / ALIGNMENT);
}

/* With the guard held.  */
static bool
begin_slab (struct small *small, CUdevice device)
{
  uint64_t offset = softgpu_store_range (SLAB);
  void *map = softgpu_map (softgpu_store (), offset, SLAB, NULL, PROT_READ | PROT_WRITE);
  if (!map)
    return false;
  small->next = (uintptr_t) map;
  small->left = SLAB;
  small->offset = offset;
  if (small != &of_host)
    softgpu_list_part (device, softgpu_store (), offset, SLAB);
  return true;
}

struct block *
softgpu_take_small (size_t bytes, CUdevice device, enum where where)
{
  unsigned class = class_of (bytes);
  size_t room = (size_t) ALIGNMENT << class;
  struct small *small = small_of (device, where);
  pthread_mutex_lock (&guard);
  struct block *block = small->unused[class];
  if (block)
    small->unused[class] = block->next;
  else if ((small->left >= room || begin_slab (small, device))
           && (block = malloc (sizeof *block)) != NULL)
    {
      *block = (struct block){ .start = small->next, .offset = small->offset };
      small->next += room;
      small->offset += room;
      small->left -= room;
    }
  pthread_mutex_unlock (&guard);
  if (block)
    block->fd = -1; /* one that is used again may have been shared */
  return block;
}

void
softgpu_return_small (struct block *block)
{
  struct block **unused = &small_of (block->device, block->where)->unused[class_of (block->bytes)];
  pthread_mutex_lock (&guard);
  block->next = *unused;
  *unused = block;
  pthread_mutex_unlock (&guard);
}
