/* Device memory: reserve, call the driver, settle.  */

#ifndef VCUDA_CHARGE_H
#define VCUDA_CHARGE_H

#include <stdint.h>

#include "pages/pages.h"
#include "real.h"

/* Counts BYTES against the slice of GPU (an index of the limits page; -1 has no slice).
   CUDA_ERROR_OUT_OF_MEMORY when they don't fit as things are; that counts no refusal.  */
CUresult vcuda_try_reserve (int gpu, uint64_t bytes);

/* A refusal that the program sees.  */
void vcuda_count_refusal (int gpu);

/* BYTES are no longer held: whoever remembers what this process holds has forgotten them by now. */
void vcuda_give_back (int gpu, uint64_t bytes);

/* Counts what is taken already, and remembered, whether or not it fits.  */
void vcuda_hold_anyway (int gpu, uint64_t bytes);

/* The slice of GPU in bytes.  */
static inline uint64_t
vcuda_memory_limit (int gpu)
{
  if (gpu < 0)
    return 0;
  return __atomic_load_n (&vcuda_pages.limits->gpu[gpu].memory_bytes, __ATOMIC_RELAXED);
}

/* In the child after a fork.  */
void vcuda_charge_forget (void);

#endif
