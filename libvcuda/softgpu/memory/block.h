/* Between block.c, which finds blocks, and allocate.c and small_block.c, which make them.  */

#pragma once

#include "memory/allocations.h"

/* Puts BLOCK, which is on the heap, among the known ones; false when it lies over another.  */
bool softgpu_insert (struct block *block);

/* Gives back the memory of BLOCK and what it counts, and frees it. Called under block.c's guard. */
void softgpu_discard (struct block *block);

/* Moves the bytes of BLOCK into the store, at the same address. Called under block.c's guard.  */
bool softgpu_make_shared (struct block *block);

/* Small blocks, which lie in slabs of the store.  */
#define LARGEST_SMALL ((size_t) 64 << 10)

/* A block with room for BYTES, at most LARGEST_SMALL, with its address and its place in the store;
   NULL: the host has no memory.  */
struct block *softgpu_take_small (size_t bytes, CUdevice device, enum where where);

/* BLOCK is used again.  */
void softgpu_return_small (struct block *block);
