/* What a launch of a function is expected to take.  */

#ifndef VCUDA_ESTIMATE_H
#define VCUDA_ESTIMATE_H

#include <stdint.h>

#define VCUDA_ESTIMATES 1024 /* a power of two */

/* Nothing is known of a function that was never measured: enough that a flood of it is held up
   until the first measurement, little enough that the correction comes before anyone notices.  */
#define VCUDA_UNKNOWN_NS 1000000ull

struct vcuda_estimates
{
  const void *function[VCUDA_ESTIMATES];
  uint64_t ns[VCUDA_ESTIMATES];
};

uint64_t vcuda_estimate (const struct vcuda_estimates *table, const void *function);
void vcuda_estimate_learn (struct vcuda_estimates *table, const void *function, uint64_t ns);

#endif
