/* Launches that a thread's credit does not settle: some are measured, some wait.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

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
  uint32_t suspensions; /* of the container when it began */
  bool contended;
  uint64_t began_ns; /* its start was marked after this moment */
  uint64_t idle_ns;  /* when the GPU was seen idle after the start; 0: it was not */
};

/* For a launch that vcuda_launch_at_once did not settle. Waits for the container's share of GPU
   time and charges the expected cost of FUNCTION. True: the launch is measured; its start is
   marked, and vcuda_launch_end must follow.  */
bool vcuda_launch_begin (struct vcuda_launch *launch, const void *function, CUstream stream);

/* The queue may have been empty: where streams overlap, the thread's next launch is measured.  */
void vcuda_measure_after_pause (int gpu);

/* Marks the end, or gives the charge back if RC means that nothing was launched.  */
void vcuda_launch_end (struct vcuda_launch *launch, CUresult rc);
