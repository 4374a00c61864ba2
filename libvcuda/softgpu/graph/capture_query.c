/* Stream capture: queries, and dependencies that a program sets.  */

#include "graph/capture.h"

static CUresult
info (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **nodes, size_t *count)
{
  REQUIRE_DRIVER ();
  REQUIRE (status, CUDA_ERROR_INVALID_VALUE);
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
  return info (stream, status, NULL, NULL, NULL, NULL);
}

CUresult
cuStreamGetCaptureInfo (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
  return info (stream, status, id, NULL, NULL, NULL);
}

CUresult
cuStreamGetCaptureInfo_v2 (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                           CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
  return info (stream, status, id, graph, dependencies, count);
}

CUresult
cuStreamGetCaptureInfo_v3 (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                           CUgraph *graph, const CUgraphNode **dependencies,
                           const CUgraphEdgeData **edges, size_t *count)
{
  if (edges)
    *edges = NULL; /* every edge here is a plain one */
  return info (stream, status, id, graph, dependencies, count);
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
