/* A set of disjoint intervals, in the order of time.  */

#include "meter/intervals.h"

#include <string.h>

static void
drop (struct vcuda_intervals *set, int at)
{
  size_t after = (size_t) (set->count - at - 1);
  memmove (&set->start[at], &set->start[at + 1], after * sizeof set->start[0]);
  memmove (&set->end[at], &set->end[at + 1], after * sizeof set->end[0]);
  set->count--;
}

double
vcuda_intervals_add (struct vcuda_intervals *set, double start, double end)
{
  if (!(end > start))
    return 0;
  double fresh = end - start;
  int at = 0;
  while (at < set->count && set->end[at] < start)
    at++;
  /* Merge every interval that touches the new one.  */
  while (at < set->count && set->start[at] <= end)
    {
      double from = set->start[at] > start ? set->start[at] : start;
      double to = set->end[at] < end ? set->end[at] : end;
      fresh -= to - from;
      start = set->start[at] < start ? set->start[at] : start;
      end = set->end[at] > end ? set->end[at] : end;
      drop (set, at);
    }
  if (set->count == VCUDA_INTERVALS)
    {
      /* Nothing older than the work in flight comes any more, so the oldest gap can be closed.  */
      set->start[1] = set->start[0];
      drop (set, 0);
      at = at ? at - 1 : 0;
      if (set->count && end < set->start[0])
        return fresh;
    }
  size_t after = (size_t) (set->count - at);
  memmove (&set->start[at + 1], &set->start[at], after * sizeof set->start[0]);
  memmove (&set->end[at + 1], &set->end[at], after * sizeof set->end[0]);
  set->start[at] = start;
  set->end[at] = end;
  set->count++;
  return fresh > 0 ? fresh : 0;
}
