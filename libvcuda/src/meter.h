/* Measures the GPU time of launches, per context.  */

#ifndef VCUDA_METER_H
#define VCUDA_METER_H

#include <stdbool.h>

#include "real.h"

struct vcuda_launch
{
  struct meter *meter;
  int entry; /* of the meter's ring; -1: charged by estimate, not measured */
  int gpu;
  CUstream stream;
  uint64_t estimate_ns;
};

/* Waits for the container's share of GPU time, charges what FUNCTION is expected to take and marks
   the start. False: not paced, launch as if we were not here.  */
bool vcuda_launch_begin (struct vcuda_launch *launch, const void *function, CUstream stream);

/* Marks the end, or gives back what was charged when RC says that nothing was launched.  */
void vcuda_launch_end (struct vcuda_launch *launch, CUresult rc);

/* Charges what has ended meanwhile in the current context.  */
void vcuda_meter_collect (void);

/* Before a context is destroyed: charge what has ended. After it: forget the meter.  */
void vcuda_meter_settle (CUcontext context);
void vcuda_meter_drop (CUcontext context);

/* In the child after a fork.  */
void vcuda_meters_forget (void);

#endif
