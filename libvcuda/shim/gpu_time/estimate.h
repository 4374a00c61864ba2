/* The expected cost of a launch of a function or graph.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

/* For a function that was never measured: enough to hold up a flood of launches until the first
   measurement, little enough that the correction is not noticed.  */
#define VCUDA_UNKNOWN_NS 1000000ull

/* One launch is measured in this much GPU time.  */
#define VCUDA_SAMPLE_NS (1ll << 20)
/* The least cost of a launch: one of 2,048 empty kernels is measured too.  */
#define VCUDA_LEAST_NS (VCUDA_SAMPLE_NS / 2048)
/* Above it every launch is measured: two events cost nothing beside it.  */
#define VCUDA_LONG_NS (VCUDA_SAMPLE_NS / 4)
/* A function with runs that differ by this many times its mean is erratic: each run is measured,
   because a sample would say little about the others.  */
#define VCUDA_ERRATIC_TIMES 16
/* The cost of a launch that must be measured: more than any credit.  */
#define VCUDA_MEASURE INT64_MAX

#define VCUDA_COST_BUCKETS 1024 /* a power of two */
#define VCUDA_COST_WAYS 4       /* of one cache line */

struct vcuda_cost
{
  const void *function;
  int64_t ns;
};

extern struct vcuda_cost vcuda_costs[VCUDA_COST_BUCKETS][VCUDA_COST_WAYS]
    __attribute__ ((visibility ("hidden")));

static inline unsigned
vcuda_cost_bucket (const void *function)
{
  return (unsigned) (((uintptr_t) function * 0x9e3779b97f4a7c15ull) >> 54);
}

/* What a launch takes from a thread's credit; VCUDA_MEASURE for a long, erratic or unknown
   function. No lock: a pair that is torn by a writer is a wrong estimate for one launch.  */
static inline int64_t
vcuda_cost (const void *function)
{
  const struct vcuda_cost *bucket = vcuda_costs[vcuda_cost_bucket (function)];
  for (unsigned way = 0; way < VCUDA_COST_WAYS; way++)
    /* Expected in the first: the hot path then has no taken branch here.  */
    if (__builtin_expect (__atomic_load_n (&bucket[way].function, __ATOMIC_RELAXED) == function, 1))
      return __atomic_load_n (&bucket[way].ns, __ATOMIC_RELAXED);
  return VCUDA_MEASURE;
}

/* The running mean.  */
uint64_t vcuda_estimate (const void *function);

/* Up to UNSURE_NS of NS may not be the launch's. BEGINS_TURN: NS may contain a switch of the GPU.
 */
void vcuda_estimate_learn (const void *function, uint64_t ns, int64_t unsure_ns, bool begins_turn);

/* In the child after a fork.  */
void vcuda_estimates_forget (void);
