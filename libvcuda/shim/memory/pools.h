/* The memory pools of this process.  */

#ifndef VCUDA_POOLS_H
#define VCUDA_POOLS_H

#include "memory/pool_charge.h"

/* The record of the pool that the program names; STREAM_GPU is its GPU when neither the driver nor
   the program said one. NULL: no room for another pool.  */
struct vcuda_pool *vcuda_pool_of (CUmemoryPool handle, int stream_gpu);

/* The pool that CONTEXT's device allocates from when the program names none.  */
struct vcuda_pool *vcuda_current_pool (int gpu, CUcontext context);

/* The records of all pools have an index below the count; those of destroyed pools are among them.
 */
struct vcuda_pool *vcuda_pool_at (unsigned index);
unsigned vcuda_pool_count (void);

/* In the child after a fork.  */
void vcuda_pools_forget (void);

#endif
