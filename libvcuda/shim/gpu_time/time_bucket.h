/* The bucket of GPU time: one per GPU, shared by all processes of the container.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A thread that had to wait waits until a whole portion is there: a wake-up for each tiny kernel
   costs more.  */
#define VCUDA_PORTION_NS 1000000ull

/* False if the share is the whole GPU's time for good (fixed, core_percent 100), and for a GPU
   without a share, on which no memory can be allocated anyway.  */
bool vcuda_paced (int gpu);

/* The GPU time in the bucket after adding the income since the last refill. At most CAP_NS is saved
   up.  */
int64_t vcuda_balance (int gpu, uint64_t cap_ns);

/* Takes GPU time from the bucket; NS below 0 gives time back. Debt has no bound: one huge kernel is
   paid for too.  */
void vcuda_spend (int gpu, int64_t ns);

/* After turns, in which the keeper's queue pays: the bucket begins with BUDGET_NS, and fills from
   now on.  */
void vcuda_resume_bucket (int gpu, int64_t budget_ns);

/* How long it takes the balance to grow by NS, within the limits of one sleep.  */
uint64_t vcuda_time_to_earn (int gpu, uint64_t ns);

/* Counts used GPU time for the container's statistics. NS below 0 corrects an amount that was
   counted too high.  */
void vcuda_count_busy (int gpu, int64_t ns);

/* The container's utilisation of its share over the last second or less, in percent.  */
unsigned vcuda_utilisation (int gpu);
