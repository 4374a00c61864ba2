/* Waits for the container's share of GPU time.  */

#pragma once

#include <stdint.h>

#include "meter/meter.h"

/* Called with the meter's lock held, before a launch in STREAM. Sleeps until the container may use
   the GPU: it has the turn, or GPU time, of which at most twice ESTIMATE_NS more is saved up; and
   little work of this process is in flight. The lock is released while the thread sleeps.  */
void vcuda_wait_for_share (struct meter *meter, CUstream stream, uint64_t estimate_ns);
