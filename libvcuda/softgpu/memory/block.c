/* The blocks of memory of this process, by address.  */

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "memory/block.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static void *blocks; /* a tsearch tree by address */

/* Blocks do not overlap; a key finds a block that it touches.  */
static int
by_address (const void *left, const void *right)
{
  const struct block *a = left, *b = right;
  if (a->start + a->bytes <= b->start)
    return -1;
  return a->start >= b->start + b->bytes;
}

/* With the guard held.  */
static struct block *
touched (uintptr_t address, size_t bytes)
{
  struct block key = { .start = address, .bytes = bytes };
  struct block **node = tfind (&key, &blocks, by_address);
  return node ? *node : NULL;
}

bool
softgpu_find_block (uintptr_t address, struct block *found)
{
  pthread_mutex_lock (&guard);
  struct block *block = touched (address, 1);
  if (block)
    *found = *block;
  pthread_mutex_unlock (&guard);
  return block != NULL;
}

bool
softgpu_any_block (uintptr_t address, size_t bytes)
{
  pthread_mutex_lock (&guard);
  bool any = touched (address, bytes) != NULL;
  pthread_mutex_unlock (&guard);
  return any;
}

bool
softgpu_insert (struct block *block)
{
  pthread_mutex_lock (&guard);
  struct block **node = tsearch (block, &blocks, by_address);
  /* Asked under the guard: another thread's removal may free the node.  */
  bool inserted = node && *node == block;
  pthread_mutex_unlock (&guard);
  return inserted;
}

bool
softgpu_add_block (const struct block *block)
{
  struct block *copy = malloc (sizeof *copy);
  if (!copy)
    return false;
  *copy = *block;
  if (softgpu_insert (copy))
    return true;
  free (copy);
  return false;
}

/* Discards under the guard, so that a mapping made anew at this address can't meet the entry.  */
bool
softgpu_remove_block (uintptr_t address, enum softgpu_kind_set kinds, struct block *was)
{
  pthread_mutex_lock (&guard);
  struct block *block = touched (address, 1);
  bool fits = block && block->start == address && kinds & 1u << block->where;
  if (fits)
    {
      tdelete (block, &blocks, by_address);
      if (was)
        {
          *was = *block;
          free (block);
        }
      else
        softgpu_discard (block);
    }
  pthread_mutex_unlock (&guard);
  return fits;
}

static struct block *of_context;
static CUcontext wanted;

static void
look_for_context (const void *node, VISIT visit, int depth)
{
  (void) depth;
  struct block *block = *(struct block *const *) node;
  if ((visit == postorder || visit == leaf) && block->context == wanted)
    {
      block->next = of_context;
      of_context = block;
    }
}

void
softgpu_free_context_memory (CUcontext context)
{
  pthread_mutex_lock (&guard);
  of_context = NULL;
  wanted = context;
  twalk (blocks, look_for_context);
  for (struct block *block; (block = of_context) != NULL;)
    {
      of_context = block->next;
      tdelete (block, &blocks, by_address);
      softgpu_discard (block);
    }
  pthread_mutex_unlock (&guard);
}

static int
protection_of (uint64_t access)
{
  int most = PROT_NONE;
  for (; access; access >>= 2)
    if ((access & 3) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return PROT_READ | PROT_WRITE;
    else if (access & 3)
      most = PROT_READ;
  return most;
}

void
softgpu_set_access (uintptr_t address, size_t bytes, CUdevice device, unsigned access)
{
  uintptr_t end = address + bytes;
  pthread_mutex_lock (&guard);
  for (struct block *block; address < end && (block = touched (address, 1)) != NULL;)
    {
      block->access &= ~(3ull << 2 * device);
      block->access |= (uint64_t) access << 2 * device;
      mprotect ((void *) block->start, block->bytes, protection_of (block->access));
      address = block->start + block->bytes;
    }
  pthread_mutex_unlock (&guard);
}

bool
softgpu_may_touch (uintptr_t address, size_t bytes, bool host_too)
{
  pthread_mutex_lock (&guard);
  bool may = bytes <= UINTPTR_MAX - address, known = false;
  while (may && bytes)
    {
      struct block *block = touched (address, 1);
      if (!block)
        {
          may = host_too && !known;
          break;
        }
      known = true;
      may = block->where != WINDOW || (block->access && !block->for_kernels);
      size_t here = block->start + block->bytes - address;
      /* Only VMM mappings go on in the next one: they lie side by side as the program laid them. */
      if (here < bytes && block->where != WINDOW)
        may = false;
      address += here;
      bytes -= here < bytes ? here : bytes;
    }
  pthread_mutex_unlock (&guard);
  return may && (known || !softgpu_reserved (address));
}

bool
softgpu_share_block (uintptr_t address, struct block *found)
{
  pthread_mutex_lock (&guard);
  struct block *block = touched (address, 1);
  bool fits = block && block->where == ON_DEVICE && softgpu_make_shared (block);
  if (fits)
    *found = *block;
  pthread_mutex_unlock (&guard);
  return fits;
}
