/* Reserves device memory before the driver is called.  */

#ifndef VCUDA_RESERVE_H
#define VCUDA_RESERVE_H

#include <stdint.h>

#include "real.h"

/* Counts BYTES against the slice of GPU (an index of the limits page; -1 has no slice). Before a
   refusal the driver takes back what this process's pools keep. CUDA_ERROR_OUT_OF_MEMORY when the
   bytes don't fit even then.  */
CUresult vcuda_reserve (int gpu, uint64_t bytes);

#endif
