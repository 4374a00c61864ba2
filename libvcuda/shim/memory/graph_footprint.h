/* The device memory that a graph's memory nodes allocate.  */

#pragma once

#include <stdbool.h>

#include "real.h"
#include "vcuda_abi.h"

/* The most that one run of a graph holds at a time, per GPU of the limits page.  */
struct vcuda_footprint
{
  uint64_t peak[VCUDA_MAX_GPUS];
  uint64_t now[VCUDA_MAX_GPUS]; /* what it leaves allocated */
  CUdevice device[VCUDA_MAX_GPUS];
};

/* Adds GRAPH's memory nodes to FOOTPRINT in the order of their creation: a node is created after
   those that it depends on. False: there are none.  */
bool vcuda_graph_footprint (CUgraph graph, struct vcuda_footprint *footprint);
