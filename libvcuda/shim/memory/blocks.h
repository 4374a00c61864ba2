/* Blocks of memory that cuMemCreate made, and their mappings.

   A block lives while it has a handle, is mapped, or is bound to an array or a multicast object
   (bindings.h). Programs map a block and release its handle at once, so all uses are counted, and
   the charge ends with the last of them. Multicast objects and imported memory have handles and
   mappings too, but are not charged: their gpu is -1.

   Blocks and mappings are in two balanced trees (tsearch): programs keep tens of thousands.  */

#pragma once

#include <stdint.h>

#include "pages/pass_on.h"
#include "real.h"
#include "thread/in_driver.h"

struct vcuda_block;

struct vcuda_mapping
{
  CUdeviceptr start;
  size_t bytes;
  struct vcuda_block *block;
};

/* The order of a tree, by a number: below 0, 0 or above 0.  */
static inline int
vcuda_compare (uint64_t left, uint64_t right)
{
  return (left > right) - (left < right);
}

/* The lock over blocks, mappings and bindings. A thread that holds it counts as in the driver
   (in_driver.h).  */
void vcuda_blocks_lock (void);
void vcuda_blocks_unlock (void);

/* The body of a function that makes CALL under the lock, and then NOTE if the driver accepted
   it.  */
#define VCUDA_WITH_BLOCKS(call, note)                                                              \
  do                                                                                               \
    {                                                                                              \
      VCUDA_PASS_ON (call);                                                                        \
      vcuda_blocks_lock ();                                                                        \
      CUresult rc = VCUDA_CALL_DRIVER (call);                                                      \
      if (rc == CUDA_SUCCESS)                                                                      \
        note;                                                                                      \
      vcuda_blocks_unlock ();                                                                      \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

/* Host memory for one block, for vcuda_block_add or free; NULL when there is none.  */
struct vcuda_block *vcuda_block_new (void);

/* All that follow need the lock.

   Enters BLOCK, which has one handle and was reserved on GPU (an index of the limits page; -1: not
   charged).  */
void vcuda_block_add (struct vcuda_block *block, CUmemGenericAllocationHandle handle,
                      uint64_t bytes, int gpu);

/* Counts a handle of something that is not charged.  */
void vcuda_block_enter (CUmemGenericAllocationHandle handle);

/* One more handle of the block, or one less; a HANDLE that is not known does nothing.  */
void vcuda_block_retain (CUmemGenericAllocationHandle handle);
void vcuda_block_release (CUmemGenericAllocationHandle handle);

/* The block of HANDLE, or of the mapping that ADDRESS lies in and that ends at *END, stays charged
   until vcuda_block_unuse. NULL: it is not known.  */
struct vcuda_block *vcuda_block_use (CUmemGenericAllocationHandle handle);
struct vcuda_block *vcuda_block_use_at (CUdeviceptr address, CUdeviceptr *end);
void vcuda_block_unuse (struct vcuda_block *block);

/* Index of the limits page; -1: not charged.  */
int vcuda_block_gpu (const struct vcuda_block *block);

/* Enters MAPPING, which is malloc's, and one use of its block, in place of a mapping that ended
   unseen.  */
void vcuda_mapping_add (struct vcuda_mapping *mapping);

/* Ends the mappings that start in these BYTES: one unmap may end many, and never a part of one.  */
void vcuda_mappings_remove (CUdeviceptr start, size_t bytes);

/* Adds what is held on each GPU to BYTES, which has VCUDA_MAX_GPUS entries. Takes no lock: a charge
   that is made under it may need this sum.  */
void vcuda_blocks_held (uint64_t *bytes);

/* In the child after a fork: the parent's blocks are not the child's.  */
void vcuda_blocks_forget (void);
