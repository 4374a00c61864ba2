/* Calls that wait for the GPU.  */

#pragma once

#include <stdint.h>

#include "compute/turn.h"
#include "real.h"

/* Before and after a call that waits for the GPU.  */
uint64_t vcuda_wait_begin (void);
void vcuda_wait_end (uint64_t began, enum vcuda_waited waited, CUstream stream);

/* Before a context is destroyed: charges what has run in it.  */
void vcuda_meter_settle (CUcontext context);
