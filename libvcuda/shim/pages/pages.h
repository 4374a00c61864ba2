/* The two pages of this container, as this process maps them.  */

#pragma once

#include <stdbool.h>

#include "vcuda_abi.h"

struct vcuda_pages
{
  const struct vcuda_limits *limits;
  struct vcuda_usage *usage;
};

/* Valid only after vcuda_ready returned true.  */
extern struct vcuda_pages vcuda_pages __attribute__ ((visibility ("hidden")));

enum vcuda_readiness
{
  VCUDA_UNKNOWN = 0,
  VCUDA_READY,
  VCUDA_REFUSED, /* without limits every call is refused */
};

extern int vcuda_readiness __attribute__ ((visibility ("hidden")));
bool vcuda_pages_map (void);

/* Whether both pages are mapped and valid. Without them no call may reach the driver.  */
static inline bool
vcuda_ready (void)
{
  int readiness = __atomic_load_n (&vcuda_readiness, __ATOMIC_ACQUIRE);
  return __builtin_expect (readiness == VCUDA_READY, 1)
         || (readiness == VCUDA_UNKNOWN && vcuda_pages_map ());
}

static inline unsigned
vcuda_gpu_count (void)
{
  unsigned count = __atomic_load_n (&vcuda_pages.limits->gpu_count, __ATOMIC_RELAXED);
  return count < VCUDA_MAX_GPUS ? count : VCUDA_MAX_GPUS;
}
