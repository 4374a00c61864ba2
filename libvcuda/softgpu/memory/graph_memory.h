/* Memory that graphs allocate, as counted on the device.  */

#pragma once

#include "graph/graph.h"

/* Takes the memory for BYTES more to the device's graph memory, as far as it has none to spare.  */
bool softgpu_reserve_graph_memory (CUdevice device, uint64_t bytes);
CUresult softgpu_begin_graph_memory (struct graph_memory *memory);

/* An allocation that a graph made was freed: its memory is the graphs' again.  */
void softgpu_graph_memory_freed (struct graph_memory *memory);
