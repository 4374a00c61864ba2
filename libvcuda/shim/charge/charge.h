/* Counts device memory against the container's share.  */

#pragma once

#include <stdint.h>

#include "pages/pages.h"
#include "real.h"

/* Counts BYTES against the share of GPU (an index of the limits page; -1: none).
   CUDA_ERROR_OUT_OF_MEMORY if they don't fit now; this counts no refusal.  */
CUresult vcuda_try_reserve (int gpu, uint64_t bytes);

/* Counts the bytes of the slot AT again, which a checkpoint has taken off the GPU.
   CUDA_ERROR_OUT_OF_MEMORY if they don't fit now: they are left out as before.  */
CUresult vcuda_count_again (unsigned at);

/* Counts a refusal that the program sees.  */
void vcuda_count_refusal (int gpu);

/* Takes BYTES off what is held. The caller's own books must not count them any more.  */
void vcuda_give_back (int gpu, uint64_t bytes);

/* Counts BYTES that are taken already, whether or not they fit. The caller's own books must count
   them already.  */
void vcuda_charge_unchecked (int gpu, uint64_t bytes);

/* The share of GPU, in bytes.  */
static inline uint64_t
vcuda_memory_limit (int gpu)
{
  if (gpu < 0)
    return 0;
  return __atomic_load_n (&vcuda_pages.limits->gpu[gpu].memory_bytes, __ATOMIC_RELAXED);
}

/* In the child after a fork.  */
void vcuda_charge_forget (void);
