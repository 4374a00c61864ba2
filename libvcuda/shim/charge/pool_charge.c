/* Reserves for an allocation from a pool, and settles the pool's charge after it.  */

#include "charge/pool_charge.h"

#include "charge/alloc_map.h"
#include "charge/charge.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

bool vcuda_pools_keep;

/* Called with the pool's mutex held. Drivers before CUDA 11.3 do not report what a pool has
   reserved, and no driver reports it for a destroyed pool: then the allocated bytes count.  */
static uint64_t
reserved_by (struct vcuda_pool *pool)
{
  cuuint64_t bytes = 0;
  bool reports_reserved
      = pool->handle
        && real.cuMemPoolGetAttribute (pool->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes)
               == CUDA_SUCCESS;
  __atomic_store_n (&pool->reports_reserved, reports_reserved, __ATOMIC_RELAXED);
  return reports_reserved ? bytes : __atomic_load_n (&pool->used, __ATOMIC_RELAXED);
}

/* Called with the pool's mutex held. The pool's number changes before the slot: a process that has
   lost its slot enters this number.  */
static void
set_charge (struct vcuda_pool *pool, uint64_t bytes)
{
  uint64_t before = pool->charged;
  if (bytes == before)
    return;
  __atomic_store_n (&pool->charged, bytes, __ATOMIC_RELAXED);
  if (bytes > before)
    vcuda_charge_unchecked (pool->gpu, bytes - before);
  else
    vcuda_give_back (pool->gpu, before - bytes);
}

/* With the pool's mutex held: charges it BYTES if they fit.  */
static bool
grow_charge (struct vcuda_pool *pool, uint64_t bytes)
{
  if (bytes <= pool->charged)
    return true;
  if (vcuda_try_reserve (pool->gpu, bytes - pool->charged) != CUDA_SUCCESS)
    return false;
  __atomic_store_n (&pool->charged, bytes, __ATOMIC_RELAXED);
  return true;
}

CUresult
vcuda_pool_begin (struct vcuda_pool_charge *charge)
{
  struct vcuda_pool *pool = charge->pool;
  uint64_t need;
  vcuda_lock (&pool->mutex);
  charge->before = pool->charged;
  bool overflow = __builtin_add_overflow (__atomic_load_n (&pool->used, __ATOMIC_RELAXED),
                                          charge->bytes, &need);
  charge->refused = overflow || pool->gpu < 0 || !grow_charge (pool, need);
  if (!charge->refused)
    return CUDA_SUCCESS;
  vcuda_unlock (&pool->mutex);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

static void
remember (const struct vcuda_pool_charge *charge, CUdeviceptr pointer)
{
  struct vcuda_allocation allocation = { .key = pointer,
                                         .bytes = charge->bytes,
                                         .context = charge->context,
                                         .gpu = (int8_t) charge->pool->gpu,
                                         .owner = VCUDA_OF_POOL,
                                         .pool = charge->pool->index };
  vcuda_map_put (&allocation);
}

CUresult
vcuda_pool_end (struct vcuda_pool_charge *charge, CUresult rc, CUdeviceptr pointer)
{
  struct vcuda_pool *pool = charge->pool;
  if (rc == CUDA_SUCCESS)
    __atomic_fetch_add (&pool->used, charge->bytes, __ATOMIC_RELAXED);
  /* An imported pool gives no memory, and may report what its exporter has reserved.  */
  uint64_t reserved = rc == CUDA_SUCCESS || charge->before ? reserved_by (pool) : 0;
  charge->refused = rc == CUDA_SUCCESS && !grow_charge (pool, reserved);
  if (charge->refused)
    {
      /* The driver took more than expected: it rounds up, or could not use what it kept.  */
      struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
      VCUDA_CALL_DRIVER (real.cuMemFreeAsync (pointer, charge->stream));
      VCUDA_CALL_DRIVER (real.cuMemPoolTrimTo (pool->handle, 0));
      vcuda_own_calls_end (mode);
      __atomic_fetch_sub (&pool->used, charge->bytes, __ATOMIC_RELAXED);
      __atomic_store_n (&vcuda_pools_keep, true, __ATOMIC_RELAXED);
      reserved = reserved_by (pool);
      rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
  else if (rc == CUDA_SUCCESS)
    remember (charge, pointer);
  set_charge (pool, reserved);
  vcuda_unlock (&pool->mutex);
  return rc;
}

void
vcuda_pool_settle_locked (struct vcuda_pool *pool)
{
  if (pool->charged)
    set_charge (pool, reserved_by (pool));
}

void
vcuda_pool_settle (struct vcuda_pool *pool)
{
  vcuda_lock (&pool->mutex);
  vcuda_pool_settle_locked (pool);
  vcuda_unlock (&pool->mutex);
}
