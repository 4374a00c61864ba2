/* The charge of a memory pool.

   A pool keeps memory that was freed, so it takes more of the device than is allocated from it. The
   charge is what the driver reports as reserved by the pool. It grows with an allocation, and
   shrinks when the driver gives kept memory back: at a wait for the GPU, or when the pool is
   trimmed.  */

#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "real.h"

struct vcuda_pool
{
  pthread_mutex_t mutex; /* held while memory is taken from the pool, and while CHARGED changes */
  CUmemoryPool handle;   /* NULL: destroyed, or without a name in the driver */
  int gpu;               /* index of the limits page; -1: no share */
  bool on_host;          /* not charged */
  bool reports_reserved; /* the driver reports what it has reserved */
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
  bool refused;    /* by the container's share, not by the driver */
};

/* Sets the charge to what POOL has reserved now. The second form is for a caller that holds the
   mutex.  */
void vcuda_pool_settle (struct vcuda_pool *pool);
void vcuda_pool_settle_locked (struct vcuda_pool *pool);

/* Reserves the expected growth of the pool. CUDA_SUCCESS: the pool is locked, and vcuda_pool_end
   must follow.  */
CUresult vcuda_pool_begin (struct vcuda_pool_charge *charge);

/* The driver returned RC and POINTER: sets the charge to what the pool has reserved now. Memory
   that does not fit is freed again; then CUDA_ERROR_OUT_OF_MEMORY.  */
CUresult vcuda_pool_end (struct vcuda_pool_charge *charge, CUresult rc, CUdeviceptr pointer);

/* Whether any pool has more reserved than its allocations need.  */
extern bool vcuda_pools_keep __attribute__ ((visibility ("hidden")));
