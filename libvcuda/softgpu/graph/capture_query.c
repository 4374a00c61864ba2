/* Stream capture: queries, and the nodes that a stream's next one depends on.  */

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

CUresult
cuStreamGetCaptureInfo_v2 (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                           CUgraph *graph, const CUgraphNode **nodes, size_t *count)
{
  REQUIRE_ARGUMENTS (status);
  REQUIRE_STREAM (context, stream);
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!softgpu_capturing (stream))
    return CUDA_SUCCESS;
  const struct capture *capture = stream->capture;
  *status
      = capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (id)
    *id = capture->id;
  if (graph)
    *graph = capture->graph;
  if (nodes)
    *nodes = stream->frontier;
  if (count)
    *count = stream->frontier_count;
  return CUDA_SUCCESS;
}

CUresult
cuStreamIsCapturing (CUstream stream, CUstreamCaptureStatus *status)
{
  return cuStreamGetCaptureInfo_v2 (stream, status, NULL, NULL, NULL, NULL);
}

CUresult
cuStreamGetCaptureInfo (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
  return cuStreamGetCaptureInfo_v2 (stream, status, id, NULL, NULL, NULL);
}

CUresult
cuStreamGetCaptureInfo_v3 (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                           CUgraph *graph, const CUgraphNode **dependencies,
                           const CUgraphEdgeData **edges, size_t *count)
{
  if (edges)
    *edges = NULL; /* every edge here is a plain one */
  return cuStreamGetCaptureInfo_v2 (stream, status, id, graph, dependencies, count);
}

CUresult
cuStreamUpdateCaptureDependencies_v2 (CUstream stream, CUgraphNode *dependencies,
                                      const CUgraphEdgeData *edges, size_t count, unsigned flags)
{
  REQUIRE_DRIVER ();
  (void) edges;
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (softgpu_capturing (stream), CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE (flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES && (dependencies || !count),
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_CAPTURE (stream);
  bool adds = flags == CU_STREAM_ADD_CAPTURE_DEPENDENCIES;
  return softgpu_set_frontier (stream, dependencies, count, adds);
}

CUresult
cuStreamUpdateCaptureDependencies (CUstream stream, CUgraphNode *dependencies, size_t count,
                                   unsigned flags)
{
  return cuStreamUpdateCaptureDependencies_v2 (stream, dependencies, NULL, count, flags);
}
