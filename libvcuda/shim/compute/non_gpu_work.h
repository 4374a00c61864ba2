/* Work in streams that is none of the GPU's: copies over the bus, host functions, waits for others.

   A wait that takes far longer than the launches which were charged is charged itself (waits.c). So
   the shim notes until when such work may go on; no wait until then is charged.  */

#ifndef VCUDA_NON_GPU_WORK_H
#define VCUDA_NON_GPU_WORK_H

#include <stdbool.h>
#include <stdint.h>

#include "real.h"

/* Nobody knows how long a host function takes, or another process.  */
#define VCUDA_OFF_GPU_UNKNOWN_NS 1000000000ull

/* Such work was queued, of at most NS.  */
void vcuda_off_gpu_queued (uint64_t ns);

/* The nanoseconds between BEGAN and NOW in which it may have gone on.  */
uint64_t vcuda_off_gpu_within (uint64_t began, uint64_t now);

/* Before a wait for EVENT, which another process may have to bring about.  */
void vcuda_off_gpu_event (CUevent event);

#endif
