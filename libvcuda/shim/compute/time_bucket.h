/* The bucket of GPU time: one per GPU, shared by all processes of the container.  */

#ifndef VCUDA_TIME_BUCKET_H
#define VCUDA_TIME_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

/* False where the slice is the whole GPU's time for good (fixed, core_percent 100), and for a GPU
   without a slice, whose memory nobody can have anyway.  */
bool vcuda_paced (int gpu);

/* GPU time in hand after adding what came in since the last refill. At most CAP_NS is saved up.  */
int64_t vcuda_balance (int gpu, uint64_t cap_ns);

/* Takes GPU time; NS below 0 gives back. Debt has no bound: one huge kernel is paid for too.  */
void vcuda_spend (int gpu, int64_t ns);

/* How long until the balance has grown by NS, within what is sensible to sleep at once.  */
uint64_t vcuda_time_to_earn (int gpu, uint64_t ns);

/* GPU time that was used, for the container's statistics. Below 0 sets right what was counted too
   much before.  */
void vcuda_count_busy (int gpu, int64_t ns);

/* The container's utilisation of its share over the last second or less, in percent.  */
unsigned vcuda_utilisation (int gpu);

#endif
