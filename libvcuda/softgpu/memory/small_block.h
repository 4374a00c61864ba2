/* Small blocks, which lie in slabs of the store.  */

#pragma once

#include "memory/allocations.h"

#define LARGEST_SMALL ((size_t) 64 << 10)

/* A block with room for BYTES, at most LARGEST_SMALL, with its address and its place in the store;
   NULL: the host has no memory.  */
struct block *softgpu_take_small (size_t bytes, CUdevice device, enum where where);

/* BLOCK is used again.  */
void softgpu_return_small (struct block *block);
