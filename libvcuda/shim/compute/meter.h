/* Launches: what is paid at once, what is measured, and who waits.  */

#ifndef VCUDA_METER_H
#define VCUDA_METER_H

#include <stdbool.h>

#include "real.h"

struct vcuda_launch
{
  struct meter *meter;
  struct entry *entry; /* NULL: charged by estimate, not measured */
  int gpu;
  CUstream stream;
  int64_t charged_ns;
  int64_t foreign_ns;
  double weight;
  bool contended;
};

/* For what vcuda_launch_at_once did not settle. Waits for the container's share of GPU time and
   charges what FUNCTION is expected to take. True: the launch is to be measured; its start is
   marked, and vcuda_launch_end must follow.  */
bool vcuda_launch_begin (struct vcuda_launch *launch, const void *function, CUstream stream);

/* Marks the end, or gives back what was charged when RC says that nothing was launched.  */
void vcuda_launch_end (struct vcuda_launch *launch, CUresult rc);

/* Before and after a call that waits for the GPU.  */
uint64_t vcuda_wait_begin (void);
void vcuda_wait_end (uint64_t began);

/* Before a context is destroyed: charge what has run in it. After it: forget the meter.  */
void vcuda_meter_settle (CUcontext context);
void vcuda_meter_drop (CUcontext context);

/* In the child after a fork.  */
void vcuda_meters_forget (void);

#endif
