#ifndef VCUDA_GRAPH_FOOTPRINT_H
#define VCUDA_GRAPH_FOOTPRINT_H

#include <stdbool.h>

#include "real.h"
#include "vcuda_abi.h"

/* What one run of a graph takes: the most at a time, per GPU of the limits page.  */
struct vcuda_footprint
{
  uint64_t peak[VCUDA_MAX_GPUS];
  uint64_t now[VCUDA_MAX_GPUS]; /* what it leaves allocated */
  CUdevice device[VCUDA_MAX_GPUS];
};

/* Adds GRAPH's memory nodes to FOOTPRINT, in the order in which they were made: a node is made
   after those that it waits for. False when it has none.  */
bool vcuda_graph_footprint (CUgraph graph, struct vcuda_footprint *footprint);

#endif
