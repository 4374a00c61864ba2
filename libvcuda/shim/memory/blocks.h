/* Memory that cuMemCreate makes and cuMemMap maps.  */

#ifndef VCUDA_BLOCKS_H
#define VCUDA_BLOCKS_H

#include "real.h"

struct vcuda_block;

/* The lock over blocks, mappings and bindings. A thread that holds it counts as in the driver
   (in_driver.h).  */
void vcuda_blocks_lock (void);
void vcuda_blocks_unlock (void);

/* All that follow need the lock. The block of HANDLE, or of the mapping that ADDRESS lies in and
   that ends at *END, stays charged until vcuda_block_unuse. NULL: it is not known.  */
struct vcuda_block *vcuda_block_use (CUmemGenericAllocationHandle handle);
struct vcuda_block *vcuda_block_use_at (CUdeviceptr address, CUdeviceptr *end);
void vcuda_block_unuse (struct vcuda_block *block);

/* Index into limits.gpu; -1: not charged.  */
int vcuda_block_gpu (const struct vcuda_block *block);

/* Counts a handle of something that is not charged.  */
void vcuda_block_enter (CUmemGenericAllocationHandle handle);

/* Adds what is held on each GPU to BYTES, which has VCUDA_MAX_GPUS entries.  */
void vcuda_virtual_memory_held (uint64_t *bytes);

/* In the child after a fork: the parent's blocks are not the child's.  */
void vcuda_virtual_memory_forget (void);

#endif
