/* Between block.c, which knows where blocks are, and allocate.c, which makes them.  */

#pragma once

#include "memory/allocations.h"

/* Puts BLOCK, which is on the heap, among the known ones; false when it lies over another.  */
bool softgpu_insert (struct block *block);

/* Gives back the memory of BLOCK and what it counts, and frees it. Called under block.c's guard. */
void softgpu_discard (struct block *block);

/* Moves the bytes of BLOCK into the store, at the same address. Called under block.c's guard.  */
bool softgpu_make_shared (struct block *block);
