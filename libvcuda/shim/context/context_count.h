/* Counts this process's contexts on each GPU, and charges for them.  */

#pragma once

#include "charge/alloc_map.h"
#include "memory/settle.h"

/* Reserves the charge of a context on DEVICE, before the driver makes it. On failure nothing is
   held.  */
CUresult vcuda_context_begin (struct vcuda_charge *charge, CUdevice device);

/* The driver returned RC. A context that it made is counted under KEY until it is taken out of the
   map and ended. Returns RC.  */
CUresult vcuda_context_begun (const struct vcuda_charge *charge, CUresult rc, uint64_t key);

/* ENTRY was taken out of the map, and the driver's call to end the context returned RC.  */
void vcuda_context_ended (const struct vcuda_allocation *entry, CUresult rc);

/* The counts as the usage page has them: a byte for each of VCUDA_MAX_GPUS.  */
void vcuda_context_counts (uint8_t *counts);

/* In the child after a fork: the parent's contexts are not the child's.  */
void vcuda_contexts_forget (void);
