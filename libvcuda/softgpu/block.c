/* Blocks of memory and their exact account.

   Device memory is anonymous memory of the process, which the kernel fills on first touch, so
   that any size up to the GPU's is cheap; a device pointer is its address. What a GPU's memory
   holds is counted to the byte, as each process's figure in its slot.  */

#include "memory.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

#define ALIGNMENT 512 /* what CUDA promises is 256 */

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static void *blocks; /* a tsearch tree by address */

/* Blocks do not overlap; a key of one byte finds the block around it.  */
static int
by_address (const void *left, const void *right)
{
  const struct block *a = left, *b = right;
  if (a->start + a->bytes <= b->start)
    return -1;
  return a->start >= b->start + b->bytes;
}

bool
softgpu_find_block (uintptr_t address, struct block *found)
{
  struct block key = { .start = address, .bytes = 1 };
  pthread_mutex_lock (&guard);
  struct block **node = tfind (&key, &blocks, by_address);
  if (node)
    *found = **node;
  pthread_mutex_unlock (&guard);
  return node != NULL;
}

static bool
counts (enum where where)
{
  return where == ON_DEVICE || where == MANAGED;
}

static uint64_t
held_by_all (unsigned gpu)
{
  uint64_t held = 0;
  for (unsigned slot = 0; slot < driver.tie.state->slots_used; slot++)
    held += driver.tie.state->slot[slot].gpu[gpu].held_bytes;
  return held;
}

static bool
reserve (CUdevice device, size_t bytes)
{
  unsigned gpu = driver.device[device].gpu;
  uint64_t total = driver.tie.state->gpu[gpu].memory_bytes;
  softgpu_lock (&driver.tie);
  uint64_t held = held_by_all (gpu);
  if (bytes > total || held > total - bytes)
    {
      softgpu_reap (&driver.tie);
      held = held_by_all (gpu);
    }
  bool fits = bytes <= total && held <= total - bytes;
  if (fits)
    softgpu_own_slot (&driver.tie)->gpu[gpu].held_bytes += bytes;
  softgpu_unlock (&driver.tie);
  return fits;
}

static void
give_back (CUdevice device, size_t bytes)
{
  softgpu_own_slot (&driver.tie)->gpu[driver.device[device].gpu].held_bytes -= bytes;
}

/* Small blocks come from the heap: a mapping for each would cost microseconds, where a driver takes
   some hundred nanoseconds.  */
static void *
take (size_t bytes, size_t *mapped)
{
  const size_t page = 4096, small = 64 << 10;
  *mapped = 0;
  if (bytes <= small)
    return aligned_alloc (ALIGNMENT, (bytes + ALIGNMENT - 1) & ~(size_t) (ALIGNMENT - 1));
  if (bytes > SIZE_MAX - page)
    return NULL;
  *mapped = (bytes + page - 1) & ~(page - 1);
  void *map = mmap (NULL, *mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? NULL : map;
}

static void
drop (void *map, size_t mapped)
{
  if (mapped)
    munmap (map, mapped);
  else
    free (map);
}

CUresult
softgpu_allocate (uintptr_t *address, size_t bytes, enum where where, unsigned flags,
                  CUmemoryPool pool)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (address && bytes, CUDA_ERROR_INVALID_VALUE);
  bool counted = counts (where);
  REQUIRE (!counted || reserve (context->device, bytes), CUDA_ERROR_OUT_OF_MEMORY);
  if (pool && !softgpu_pool_take (pool, bytes))
    {
      give_back (context->device, bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  size_t mapped = 0;
  struct block *block = malloc (sizeof *block);
  void *map = block ? take (bytes, &mapped) : NULL;
  void *node = NULL;
  if (map)
    {
      *block = (struct block){ .start = (uintptr_t) map,
                               .bytes = bytes,
                               .mapped = mapped,
                               .context = context,
                               .device = context->device,
                               .where = where,
                               .flags = flags,
                               .pool = pool };
      pthread_mutex_lock (&guard);
      node = tsearch (block, &blocks, by_address);
      pthread_mutex_unlock (&guard);
    }
  if (!node)
    {
      if (map)
        drop (map, mapped);
      free (block);
      if (counted)
        give_back (context->device, bytes);
      softgpu_pool_return (pool, bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  *address = (uintptr_t) map;
  return CUDA_SUCCESS;
}

static void
discard (struct block *block)
{
  if (block->where != REGISTERED)
    drop ((void *) block->start, block->mapped);
  if (counts (block->where))
    give_back (block->device, block->bytes);
  softgpu_pool_return (block->pool, block->bytes);
  free (block);
}

CUresult
softgpu_release (uintptr_t address, enum softgpu_kind_set kinds)
{
  REQUIRE_DRIVER ();
  struct block key = { .start = address, .bytes = 1 };
  struct block *block = NULL;
  pthread_mutex_lock (&guard);
  struct block **node = tfind (&key, &blocks, by_address);
  if (node && (*node)->start == address && kinds & 1u << (*node)->where)
    {
      block = *node;
      tdelete (block, &blocks, by_address);
      /* Under the guard, so that a mapping made anew at this address can't meet the old entry.  */
      discard (block);
    }
  pthread_mutex_unlock (&guard);
  return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct block *of_context;
static CUcontext wanted;

static void
look_for_context (const void *node, VISIT visit, int depth)
{
  (void) depth;
  struct block *block = *(struct block *const *) node;
  if ((visit == postorder || visit == leaf) && block->context == wanted)
    of_context = block;
}

void
softgpu_free_context_memory (CUcontext context)
{
  pthread_mutex_lock (&guard);
  for (;;)
    {
      of_context = NULL;
      wanted = context;
      twalk (blocks, look_for_context);
      if (!of_context)
        break;
      tdelete (of_context, &blocks, by_address);
      discard (of_context);
    }
  pthread_mutex_unlock (&guard);
}

CUresult
softgpu_register (uintptr_t address, size_t bytes, unsigned flags)
{
  REQUIRE_CONTEXT (context);
  struct block known;
  REQUIRE (!softgpu_find_block (address, &known), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  struct block *block = malloc (sizeof *block);
  REQUIRE (block, CUDA_ERROR_OUT_OF_MEMORY);
  *block = (struct block){ .start = address,
                           .bytes = bytes,
                           .context = context,
                           .device = context->device,
                           .where = REGISTERED,
                           .flags = flags };
  pthread_mutex_lock (&guard);
  void *node = tsearch (block, &blocks, by_address);
  pthread_mutex_unlock (&guard);
  if (!node)
    free (block);
  return node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

uint64_t
softgpu_held (CUdevice device)
{
  softgpu_lock (&driver.tie);
  softgpu_reap (&driver.tie);
  uint64_t held = held_by_all (driver.device[device].gpu);
  softgpu_unlock (&driver.tie);
  return held;
}
