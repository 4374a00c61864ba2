/* Waits for the container's share of GPU time.  */

#ifndef VCUDA_THROTTLE_H
#define VCUDA_THROTTLE_H

#include <stdint.h>

#include "compute/meter.h"

/* Who had to wait waits until a whole portion is there: a wake-up per tiny kernel costs more.  */
#define VCUDA_PORTION_NS 1000000ull

/* Called with the meter's lock held. Sleeps until the container has GPU time in hand, with
   ESTIMATE_NS more saved up at most twice, and little of ours is under way. The lock is let go
   while asleep.  */
void vcuda_wait_for_share (struct meter *meter, uint64_t estimate_ns);

/* Takes GPU time out of the bucket, if it is paced. NS below 0 gives back.  */
void vcuda_charge_time (int gpu, int64_t ns);

#endif
