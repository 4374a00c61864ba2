/* Utilisation: busy time of the last second.  */

#include "state/busy.h"

void
softgpu_count_busy (struct softgpu_period *period, uint64_t from, uint64_t ran)
{
  while (ran)
    {
      uint32_t number = (uint32_t) (from / SOFTGPU_PERIOD_NS);
      uint64_t here = SOFTGPU_PERIOD_NS - from % SOFTGPU_PERIOD_NS;
      if (here > ran)
        here = ran;
      struct softgpu_period *entry = &period[number % SOFTGPU_PERIODS];
      if (entry->number != number)
        *entry = (struct softgpu_period){ .number = number };
      entry->busy_ns += (uint32_t) here;
      from += here;
      ran -= here;
    }
}

unsigned
softgpu_percent_busy (const struct softgpu_period *period, uint64_t now)
{
  uint32_t current = (uint32_t) (now / SOFTGPU_PERIOD_NS);
  uint64_t busy = 0;
  for (unsigned i = 0; i < SOFTGPU_PERIODS; i++)
    if (period[i].number < current && period[i].number + 10 >= current)
      busy += period[i].busy_ns;
  return (unsigned) ((busy + 5000000) / 10000000);
}
