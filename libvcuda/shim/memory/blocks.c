/* Blocks and mappings, each kind in a balanced tree.  */

#include "memory/blocks.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "charge/charge.h"
#include "memory/bindings.h"

struct vcuda_block
{
  CUmemGenericAllocationHandle handle;
  uint64_t bytes;
  int gpu;
  unsigned handles, uses; /* mapped, or bound */
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
  return vcuda_compare (((const struct vcuda_mapping *) one)->start,
                        ((const struct vcuda_mapping *) other)->start);
}

/* Equal: a mapping that starts within RANGE.  */
static int
by_range (const void *range, const void *mapping)
{
  CUdeviceptr start = ((const struct vcuda_mapping *) mapping)->start;
  const struct vcuda_mapping *wanted = range;
  if (start < wanted->start)
    return 1;
  return start - wanted->start < wanted->bytes ? 0 : -1;
}

/* Equal: the mapping that contains ADDRESS, of which only the start is set.  */
static int
by_address (const void *address, const void *mapping)
{
  CUdeviceptr wanted = ((const struct vcuda_mapping *) address)->start;
  const struct vcuda_mapping *here = mapping;
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
  struct vcuda_mapping **node
      = tfind (&(struct vcuda_mapping){ .start = address }, &mappings, by_address);
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

struct vcuda_block *
vcuda_block_new (void)
{
  return malloc (sizeof (struct vcuda_block));
}

void
vcuda_block_add (struct vcuda_block *block, CUmemGenericAllocationHandle handle, uint64_t bytes,
                 int gpu)
{
  *block = (struct vcuda_block){ .handle = handle, .bytes = bytes, .gpu = gpu, .handles = 1 };
  if (gpu >= 0)
    __atomic_fetch_add (&held[gpu], bytes, __ATOMIC_RELAXED);
  if (!tsearch (block, &blocks, by_handle))
    free (block); /* no host memory: the charge stays until the process ends */
}

void
vcuda_block_enter (CUmemGenericAllocationHandle handle)
{
  struct vcuda_block *block = find (handle);
  if (block)
    block->handles++;
  else if ((block = vcuda_block_new ()))
    vcuda_block_add (block, handle, 0, -1);
}

void
vcuda_block_retain (CUmemGenericAllocationHandle handle)
{
  struct vcuda_block *block = find (handle);
  if (block)
    block->handles++;
}

void
vcuda_block_release (CUmemGenericAllocationHandle handle)
{
  struct vcuda_block *block = find (handle);
  if (block && block->handles)
    {
      block->handles--;
      end_if_unused (block);
    }
}

void
vcuda_mapping_add (struct vcuda_mapping *mapping)
{
  struct vcuda_mapping **node = tsearch (mapping, &mappings, by_start);
  mapping->block->uses++;
  if (!node)
    free (mapping); /* no host memory: the charge stays until the process ends */
  if (!node || *node == mapping)
    return;
  struct vcuda_mapping *ended = *node;
  *node = mapping;
  vcuda_block_unuse (ended->block);
  free (ended);
}

void
vcuda_mappings_remove (CUdeviceptr start, size_t bytes)
{
  const struct vcuda_mapping range = { .start = start, .bytes = bytes };
  struct vcuda_mapping **node;
  while ((node = tfind (&range, &mappings, by_range)) != NULL)
    {
      struct vcuda_mapping *unmapped = *node;
      tdelete (unmapped, &mappings, by_start);
      vcuda_block_unuse (unmapped->block);
      free (unmapped);
    }
}

/* Takes no lock: a charge that is made under it may need this sum.  */
void
vcuda_blocks_held (uint64_t *bytes)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    bytes[gpu] += __atomic_load_n (&held[gpu], __ATOMIC_RELAXED);
}

void
vcuda_blocks_forget (void)
{
  memset (held, 0, sizeof held);
  pthread_mutex_init (&mutex, NULL);
  blocks = mappings = NULL; /* the parent's, perhaps half changed */
}
