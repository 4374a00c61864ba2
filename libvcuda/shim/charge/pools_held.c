/* Settles, trims and sums the charges of all memory pools.  */

#include "charge/pools_held.h"

#include "charge/pools.h"
#include "pages/pages.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

void
vcuda_pool_lost (uint16_t index, uint64_t bytes)
{
  __atomic_fetch_sub (&vcuda_pool_at (index)->used, bytes, __ATOMIC_RELAXED);
}

void
vcuda_pool_freed (uint16_t index, uint64_t bytes)
{
  struct vcuda_pool *pool = vcuda_pool_at (index);
  vcuda_pool_lost (index, bytes);
  if (!__atomic_load_n (&pool->reports_reserved, __ATOMIC_RELAXED))
    vcuda_pool_settle (pool);
  else if (!__atomic_load_n (&vcuda_pools_keep, __ATOMIC_RELAXED))
    __atomic_store_n (&vcuda_pools_keep, true, __ATOMIC_RELAXED); /* until a wait */
}

void
vcuda_pools_settle (void)
{
  __atomic_store_n (&vcuda_pools_keep, false, __ATOMIC_RELAXED);
  bool keep = false;
  for (unsigned i = 0; i < vcuda_pool_count (); i++)
    {
      struct vcuda_pool *pool = vcuda_pool_at (i);
      vcuda_pool_settle (pool);
      keep |= __atomic_load_n (&pool->charged, __ATOMIC_RELAXED)
              > __atomic_load_n (&pool->used, __ATOMIC_RELAXED);
    }
  for (int gpu = 0; keep && gpu < (int) vcuda_gpu_count (); gpu++)
    if (vcuda_trim_is_asked (gpu))
      vcuda_pools_trim (gpu);
  if (keep)
    __atomic_store_n (&vcuda_pools_keep, true, __ATOMIC_RELAXED);
}

bool
vcuda_pools_trim (int gpu)
{
  bool freed = false;
  if (vcuda_thread ()->in_driver)
    return false;
  for (unsigned i = 0; i < vcuda_pool_count (); i++)
    {
      struct vcuda_pool *pool = vcuda_pool_at (i);
      vcuda_lock (&pool->mutex);
      uint64_t before = pool->charged;
      struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
      if (pool->gpu == gpu && before && pool->handle)
        real.cuMemPoolTrimTo (pool->handle, 0);
      vcuda_own_calls_end (mode);
      vcuda_pool_settle_locked (pool);
      freed |= pool->charged < before;
      vcuda_unlock (&pool->mutex);
    }
  return freed;
}

/* No lock: the caller may be in the middle of a charge for a pool.  */
void
vcuda_pools_held (uint64_t *bytes)
{
  for (unsigned i = 0; i < vcuda_pool_count (); i++)
    {
      struct vcuda_pool *pool = vcuda_pool_at (i);
      if (pool->gpu >= 0)
        bytes[pool->gpu] += __atomic_load_n (&pool->charged, __ATOMIC_RELAXED);
    }
}
