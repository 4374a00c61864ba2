/* Where a memory pool's memory is.  */

#ifndef VCUDA_POOLS_H
#define VCUDA_POOLS_H

#include <stdbool.h>

#include "real.h"

/* The GPU that POOL's memory is on, as an index of the limits page; STREAM_GPU when neither the
   driver nor the program said. ON_HOST: it is host memory.  */
int vcuda_gpu_of_pool (CUmemoryPool pool, int stream_gpu, bool *on_host);

/* In the child after a fork.  */
void vcuda_pools_forget (void);

#endif
