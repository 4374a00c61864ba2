/* Walks the nodes of a graph and of its child graphs, and adds up what they allocate.  */

#include "memory/graph_footprint.h"

#include <stdlib.h>

#include "pages/device.h"

#define MOST_NESTED 16

struct live
{
  CUdeviceptr pointer;
  uint64_t bytes;
  int gpu;
};

struct walk
{
  struct vcuda_footprint *footprint;
  struct live *live; /* allocated by a node and not freed by a later one */
  size_t count, room;
  bool found;
};

static void
allocate (struct walk *walk, const CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  if (params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return;
  int gpu = vcuda_gpu_of_device (params->poolProps.location.id);
  if (gpu < 0)
    return;
  struct vcuda_footprint *footprint = walk->footprint;
  walk->found = true;
  footprint->device[gpu] = params->poolProps.location.id;
  footprint->now[gpu] += params->bytesize;
  if (footprint->now[gpu] > footprint->peak[gpu])
    footprint->peak[gpu] = footprint->now[gpu];
  if (walk->count == walk->room)
    {
      size_t wider = walk->room ? walk->room * 2 : 64;
      struct live *moved = realloc (walk->live, wider * sizeof *moved);
      if (!moved)
        return; /* it counts as never freed */
      walk->live = moved;
      walk->room = wider;
    }
  walk->live[walk->count++] = (struct live){ params->dptr, params->bytesize, gpu };
}

static void
release (struct walk *walk, CUdeviceptr pointer)
{
  for (size_t i = 0; i < walk->count; i++)
    if (walk->live[i].pointer == pointer)
      {
        walk->footprint->now[walk->live[i].gpu] -= walk->live[i].bytes;
        walk->live[i] = walk->live[--walk->count];
        return;
      }
}

static void
visit (struct walk *walk, CUgraph graph, unsigned depth)
{
  size_t count = 0;
  if (depth > MOST_NESTED || real.cuGraphGetNodes (graph, NULL, &count) != CUDA_SUCCESS || !count)
    return;
  CUgraphNode *nodes = calloc (count, sizeof *nodes);
  if (!nodes || real.cuGraphGetNodes (graph, nodes, &count) != CUDA_SUCCESS)
    count = 0;
  for (size_t i = 0; i < count; i++)
    {
      CUgraphNodeType type;
      CUDA_MEM_ALLOC_NODE_PARAMS params;
      CUdeviceptr pointer;
      CUgraph child;
      if (real.cuGraphNodeGetType (nodes[i], &type) != CUDA_SUCCESS)
        continue;
      if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
          && real.cuGraphMemAllocNodeGetParams (nodes[i], &params) == CUDA_SUCCESS)
        allocate (walk, &params);
      else if (type == CU_GRAPH_NODE_TYPE_MEM_FREE
               && real.cuGraphMemFreeNodeGetParams (nodes[i], &pointer) == CUDA_SUCCESS)
        release (walk, pointer);
      else if (type == CU_GRAPH_NODE_TYPE_GRAPH
               && real.cuGraphChildGraphNodeGetGraph (nodes[i], &child) == CUDA_SUCCESS)
        visit (walk, child, depth + 1);
    }
  free (nodes);
}

bool
vcuda_graph_footprint (CUgraph graph, struct vcuda_footprint *footprint)
{
  struct walk walk = { .footprint = footprint };
  visit (&walk, graph, 0);
  free (walk.live);
  return walk.found;
}
