/* Stream capture: the nodes that a stream's next one depends on.  */

#include <stdlib.h>

#include "graph/capture.h"

CUresult
softgpu_set_frontier (CUstream stream, const CUgraphNode *nodes, size_t count, bool add)
{
  size_t kept = add ? stream->frontier_count : 0;
  if (kept + count > stream->frontier_room)
    {
      size_t room = 2 * (kept + count);
      CUgraphNode *larger = realloc (stream->frontier, room * sizeof *larger);
      REQUIRE (larger, CUDA_ERROR_OUT_OF_MEMORY);
      stream->frontier = larger;
      stream->frontier_room = room;
    }
  for (size_t i = 0; i < count; i++)
    {
      bool there = false;
      for (size_t j = 0; j < kept && !there; j++)
        there = stream->frontier[j] == nodes[i];
      if (!there)
        stream->frontier[kept++] = nodes[i];
    }
  stream->frontier_count = kept;
  return CUDA_SUCCESS;
}

bool
softgpu_joined (const struct capture *capture)
{
  size_t left = 0, count = capture->graph->count;
  CUgraphNode *stack = malloc ((count + 1) * sizeof *stack);
  if (!stack)
    return false;
  for (CUgraphNode node = capture->graph->first; node; node = node->next)
    node->visited = 0;
  const CUstream origin = capture->origin;
  for (size_t i = 0; i < origin->frontier_count; i++)
    {
      origin->frontier[i]->visited = 1;
      stack[left++] = origin->frontier[i];
    }
  while (left)
    {
      CUgraphNode node = stack[--left];
      for (size_t i = 0; i < node->from_count; i++)
        if (!node->from[i]->visited)
          {
            node->from[i]->visited = 1;
            stack[left++] = node->from[i];
          }
    }
  free (stack);
  for (CUstream stream = capture->streams; stream; stream = stream->capture_next)
    for (size_t i = 0; i < stream->frontier_count; i++)
      if (!stream->frontier[i]->visited)
        return false;
  return true;
}
