/* What a memory pool is charged.

   A pool keeps memory that was freed, so what it takes of the device is more than what is allocated
   from it. Charged is what the driver says that the pool has reserved. It grows with an allocation,
   and shrinks when the driver gives kept memory back: at a wait for the GPU, or when it is trimmed.
 */

#ifndef VCUDA_POOL_CHARGE_H
#define VCUDA_POOL_CHARGE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "real.h"

struct vcuda_pool
{
  pthread_mutex_t mutex; /* held while memory is taken from the pool, and while CHARGED changes */
  CUmemoryPool handle;   /* NULL: destroyed, or the driver has no name for it */
  int gpu;               /* index of the limits page; -1 has no slice */
  bool on_host;          /* not charged */
  bool told;             /* the driver says what it has reserved */
  uint16_t index;        /* in allocations' entries */
  uint64_t used;         /* by live allocations */
  uint64_t charged;
};

/* One allocation from a pool.  */
struct vcuda_pool_charge
{
  struct vcuda_pool *pool;
  CUcontext context;
  CUstream stream;
  uint64_t bytes;
  uint64_t before; /* the pool's charge */
  bool refused;    /* by the slice, not by the driver */
};

/* Charges POOL what it has reserved now. The second has its mutex.  */
void vcuda_pool_settle (struct vcuda_pool *pool);
void vcuda_pool_settle_locked (struct vcuda_pool *pool);

/* Reserves what the pool is expected to grow by. CUDA_SUCCESS: the pool is locked, and
   vcuda_pool_end must follow.  */
CUresult vcuda_pool_begin (struct vcuda_pool_charge *charge);

/* Charges what the pool has reserved now that the driver answered RC and gave POINTER. What does
   not fit is freed again, and CUDA_ERROR_OUT_OF_MEMORY answered.  */
CUresult vcuda_pool_end (struct vcuda_pool_charge *charge, CUresult rc, CUdeviceptr pointer);

/* Has any pool more than its allocations need?  */
extern bool vcuda_pools_keep;

#endif
