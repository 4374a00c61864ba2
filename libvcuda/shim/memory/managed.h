/* Managed memory, for a GPU with shares of more memory in all than it has: the driver moves pages
   between GPU and host.  */

#pragma once

#include <stdbool.h>

#include "pages/pages.h"
#include "real.h"

/* Whether the host wants the memory of GPU (an index of the limits page; -1: none) to be
   managed.  */
static inline bool
vcuda_managed (int gpu)
{
  return gpu >= 0
         && __atomic_load_n (&vcuda_pages.limits->gpu[gpu].managed_memory, __ATOMIC_RELAXED);
}

/* cuMemAlloc_v2 in managed memory, on the current context's GPU. CUDA_ERROR_NOT_SUPPORTED, with one
   line on stderr, if the driver cannot move its pages.  */
CUresult vcuda_alloc_managed (CUdeviceptr *dptr, size_t bytes);

/* The same for cuMemAllocPitch_v2, with the pitch that the driver would choose.  */
CUresult vcuda_alloc_managed_pitch (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                                    unsigned int element);
