#include "estimate.h"

#define PROBES 8

static unsigned
home_of (const void *function)
{
  return (unsigned) (((uintptr_t) function * 0x9e3779b97f4a7c15ull) >> 54);
}

_Static_assert (VCUDA_ESTIMATES == 1 << (64 - 54), "home_of takes the top bits");

uint64_t
vcuda_estimate (const struct vcuda_estimates *table, const void *function)
{
  unsigned home = home_of (function);
  for (unsigned i = 0; i < PROBES; i++)
    {
      unsigned at = (home + i) % VCUDA_ESTIMATES;
      if (table->function[at] == function)
        return table->ns[at];
    }
  return VCUDA_UNKNOWN_NS;
}

void
vcuda_estimate_learn (struct vcuda_estimates *table, const void *function, uint64_t ns)
{
  unsigned home = home_of (function);
  unsigned slot = home % VCUDA_ESTIMATES; /* replaced when the neighbourhood is full */
  for (unsigned i = 0; i < PROBES; i++)
    {
      unsigned at = (home + i) % VCUDA_ESTIMATES;
      if (table->function[at] == function)
        {
          /* A quarter of the news: one odd run changes little, a new size soon shows.  */
          table->ns[at] = table->ns[at] - table->ns[at] / 4 + ns / 4;
          return;
        }
      if (!table->function[at])
        {
          slot = at;
          break;
        }
    }
  table->function[slot] = function;
  table->ns[slot] = ns;
}
