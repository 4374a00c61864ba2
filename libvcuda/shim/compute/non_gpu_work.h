/* Work in streams that does not use the GPU: copies over the bus, host functions, waits for other
   processes.

   A wait that takes far longer than the charged launches is charged itself (waits.c). A wait for
   the work here is not: the shim records until when such work may last.  */

#pragma once

#include <stdint.h>

#include "real.h"

/* The nanoseconds between BEGAN and NOW in which such work may have gone on.  */
uint64_t vcuda_off_gpu_within (uint64_t began, uint64_t now);

/* Before a wait for EVENT, which another process may have to record.  */
void vcuda_off_gpu_event (CUevent event);
