/* The memory pools of this process.  */

#pragma once

#include "charge/pool_charge.h"

/* The record of the pool HANDLE; STREAM_GPU is its GPU if its location is not known. NULL: no room
   for another pool.  */
struct vcuda_pool *vcuda_pool_of (CUmemoryPool handle, int stream_gpu);

/* The pool that CONTEXT's device allocates from if the program names none.  */
struct vcuda_pool *vcuda_current_pool (int gpu, CUcontext context);

/* The record of each pool has an index below the count; records of destroyed pools are among
   them.  */
struct vcuda_pool *vcuda_pool_at (unsigned index);
unsigned vcuda_pool_count (void);

/* Whether the turn keeper has asked for what pools of GPU keep (room.h), since the last call or
   since the first pool was made.  */
bool vcuda_trim_is_asked (int gpu);

/* In the child after a fork.  */
void vcuda_pools_forget (void);
