/* What all memory pools of this process hold.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "charge/pool_charge.h"

/* BYTES of the pool INDEX were freed. The second form is for allocations that ended with their
   context: it makes no call and takes no lock, and vcuda_pools_settle must follow.  */
void vcuda_pool_freed (uint16_t index, uint64_t bytes);
void vcuda_pool_lost (uint16_t index, uint64_t bytes);

/* Sets the charge of each pool to what it has reserved now.  */
void vcuda_pools_settle (void);

/* After a call that waited for the GPU.  */
static inline void
vcuda_pools_waited (void)
{
  if (__atomic_load_n (&vcuda_pools_keep, __ATOMIC_RELAXED))
    vcuda_pools_settle ();
}

/* Makes the driver take back what the pools of GPU keep. False: it took nothing back.  */
bool vcuda_pools_trim (int gpu);

/* Adds what is charged on each GPU to BYTES, which has VCUDA_MAX_GPUS entries.  */
void vcuda_pools_held (uint64_t *bytes);
