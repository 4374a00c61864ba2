/* The order of the trees of tsearch.  */

#ifndef VCUDA_COMPARE_H
#define VCUDA_COMPARE_H

#include <stdint.h>

/* Below 0, 0 or above 0.  */
static inline int
vcuda_compare (uint64_t left, uint64_t right)
{
  return (left > right) - (left < right);
}

#endif
