/* Learns the cost of each function's launches from measured ones. The table has a fixed size: where
   a bucket is full, a new function replaces a known one.  */

#include "gpu_time/estimate.h"

#include <stdbool.h>

#include "thread/in_driver.h"

/* This many launches of a new function are measured before a sample stands for others.  */
#define FIRST_LAUNCHES 8
/* Of its mean: the most that is learnt from a launch that may contain a switch of the GPU.
   Functions that get slower are learnt from a few of them.  */
#define MOST_TIMES 4

_Static_assert (VCUDA_COST_BUCKETS == 1 << (64 - 54), "vcuda_cost_bucket takes the top bits");
_Static_assert (sizeof (struct vcuda_cost) * VCUDA_COST_WAYS == 64, "a bucket is a cache line");

struct learnt
{
  int64_t mean_ns;
  int64_t deviation_ns; /* the largest of the recent ones */
  unsigned launches;    /* measured, up to FIRST_LAUNCHES */
};

struct vcuda_cost vcuda_costs[VCUDA_COST_BUCKETS][VCUDA_COST_WAYS] __attribute__ ((aligned (64)));
static struct learnt learnt[VCUDA_COST_BUCKETS][VCUDA_COST_WAYS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned next_victim;

static unsigned
way_of (const struct vcuda_cost *bucket, const void *function)
{
  unsigned way = 0;
  while (way < VCUDA_COST_WAYS && bucket[way].function != function)
    way++;
  return way;
}

uint64_t
vcuda_estimate (const void *function)
{
  unsigned at = vcuda_cost_bucket (function);
  vcuda_lock (&mutex);
  unsigned way = way_of (vcuda_costs[at], function);
  uint64_t ns = way < VCUDA_COST_WAYS ? (uint64_t) learnt[at][way].mean_ns : VCUDA_UNKNOWN_NS;
  vcuda_unlock (&mutex);
  return ns;
}

static int64_t
cost_of (const struct learnt *known)
{
  int64_t ns = known->mean_ns < VCUDA_LEAST_NS ? VCUDA_LEAST_NS : known->mean_ns;
  if (known->launches < FIRST_LAUNCHES || ns >= VCUDA_LONG_NS
      || known->deviation_ns > VCUDA_ERRATIC_TIMES * ns)
    return VCUDA_MEASURE;
  return ns;
}

static void
enter (struct vcuda_cost *cost, struct learnt *known, const void *function, int64_t ns)
{
  __atomic_store_n (&cost->function, NULL, __ATOMIC_RELEASE);
  *known = (struct learnt){ .mean_ns = ns, .launches = 1 };
  __atomic_store_n (&cost->ns, cost_of (known), __ATOMIC_RELEASE);
  __atomic_store_n (&cost->function, function, __ATOMIC_RELEASE);
}

static void
revise (struct vcuda_cost *cost, struct learnt *known, int64_t ns, int64_t unsure_ns,
        bool begins_turn)
{
  /* The driver may load a function at its first launch, which takes far longer than any other.  */
  if (known->launches == 1)
    known->mean_ns = ns;
  if (known->launches < FIRST_LAUNCHES)
    known->launches++;
  int64_t most = MOST_TIMES * (known->mean_ns + VCUDA_LEAST_NS);
  if (begins_turn && ns > most)
    ns = most;
  /* Nothing is learnt from what may not be the launch's: it would make the function look erratic.
   */
  if (ns > known->mean_ns)
    ns = ns - unsure_ns > known->mean_ns ? ns - unsure_ns : known->mean_ns;
  int64_t off = ns > known->mean_ns ? ns - known->mean_ns : known->mean_ns - ns;
  known->deviation_ns -= known->deviation_ns / 1024;
  if (known->deviation_ns < off)
    known->deviation_ns = off;
  /* A quarter of the new value: one odd run changes little, a new size soon shows.  */
  known->mean_ns = known->mean_ns - known->mean_ns / 4 + ns / 4;
  /* Every thread reads this line at each launch, so write it only for a change that matters.  */
  int64_t now = cost_of (known), old = cost->ns;
  int64_t change = now > old ? now - old : old - now;
  if (change > old / 16)
    __atomic_store_n (&cost->ns, now, __ATOMIC_RELAXED);
}

void
vcuda_estimate_learn (const void *function, uint64_t ns, int64_t unsure_ns, bool begins_turn)
{
  unsigned at = vcuda_cost_bucket (function);
  struct vcuda_cost *bucket = vcuda_costs[at];
  vcuda_lock (&mutex);
  unsigned way = way_of (bucket, function);
  if (way < VCUDA_COST_WAYS)
    revise (&bucket[way], &learnt[at][way], (int64_t) ns, unsure_ns, begins_turn);
  else
    {
      way = way_of (bucket, NULL);
      if (way == VCUDA_COST_WAYS)
        way = next_victim++ % VCUDA_COST_WAYS;
      enter (&bucket[way], &learnt[at][way], function, (int64_t) ns);
    }
  vcuda_unlock (&mutex);
}

void
vcuda_estimates_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
}
