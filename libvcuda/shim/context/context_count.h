/* How many contexts this process has on each GPU, and what they are charged.  */

#ifndef VCUDA_CONTEXT_COUNT_H
#define VCUDA_CONTEXT_COUNT_H

#include "memory/alloc_map.h"
#include "memory/settle.h"
#include "vcuda_abi.h"

/* Reserves what a context on DEVICE is charged, before the driver makes it. On failure nothing is
   held.  */
CUresult vcuda_context_begin (struct vcuda_charge *charge, CUdevice device);

/* The driver answered RC. A context that it made counts under KEY until it is taken out of the map
   and ended. Answers RC.  */
CUresult vcuda_context_begun (const struct vcuda_charge *charge, CUresult rc, uint64_t key);

/* GONE was taken out of the map, and the driver's call to end it answered RC.  */
void vcuda_context_ended (const struct vcuda_allocation *gone, CUresult rc);

/* As the usage page tells it: one byte a GPU, of VCUDA_MAX_GPUS.  */
void vcuda_context_counts (uint8_t *counts);

/* In the child after a fork: the parent's contexts are not the child's.  */
void vcuda_contexts_forget (void);

#endif
