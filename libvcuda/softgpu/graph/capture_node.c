/* Stream capture: each call on a captured stream becomes a node of its graph.  */

#include <stdlib.h>
#include <string.h>

#include "graph/capture.h"

/* A node of TYPE on STREAM, on which the stream's next one depends.  */
static CUresult
add (CUstream stream, CUgraphNodeType type, CUgraphNode *node)
{
  REQUIRE_CAPTURE (stream);
  REQUIRE_SUCCESS (softgpu_add_node (node, stream->capture->graph, type, stream->frontier,
                                     stream->frontier_count));
  return softgpu_set_frontier (stream, node, 1, false);
}

#define CAPTURE(name, wanted, member, type)                                                        \
  CUresult softgpu_capture_##name (CUstream stream, const type *params)                            \
  {                                                                                                \
    CUgraphNode node = NULL;                                                                       \
    REQUIRE_SUCCESS (add (stream, CU_GRAPH_NODE_TYPE_##wanted, &node));                            \
    node->member = *params;                                                                        \
    return CUDA_SUCCESS;                                                                           \
  }

CAPTURE (copy, MEMCPY, copy, CUDA_MEMCPY3D)
CAPTURE (set, MEMSET, set, CUDA_MEMSET_NODE_PARAMS)
CAPTURE (host, HOST, host, CUDA_HOST_NODE_PARAMS)

CUresult
softgpu_capture_kernel (CUstream stream, const CUDA_KERNEL_NODE_PARAMS *params)
{
  REQUIRE_CAPTURE (stream);
  CUgraphNode node = NULL;
  REQUIRE_SUCCESS (cuGraphAddKernelNode_v2 (&node, stream->capture->graph, stream->frontier,
                                            stream->frontier_count, params));
  return softgpu_set_frontier (stream, &node, 1, false);
}

CUresult
softgpu_capture_child (CUstream stream, CUgraph child)
{
  CUgraphNode node = NULL;
  CUresult rc = add (stream, CU_GRAPH_NODE_TYPE_GRAPH, &node);
  if (node)
    node->child = child;
  else
    cuGraphDestroy (child);
  return rc;
}

CUresult
softgpu_capture_alloc (CUstream stream, CUdeviceptr *address, size_t bytes, CUdevice device)
{
  REQUIRE_CAPTURE (stream);
  CUDA_MEM_ALLOC_NODE_PARAMS params = { .bytesize = bytes };
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  params.poolProps.location.id = device;
  CUgraphNode node = NULL;
  CUresult rc = cuGraphAddMemAllocNode (&node, stream->capture->graph, stream->frontier,
                                        stream->frontier_count, &params);
  *address = params.dptr;
  return rc == CUDA_SUCCESS ? softgpu_set_frontier (stream, &node, 1, false) : rc;
}

CUresult
softgpu_capture_free (CUstream stream, CUdeviceptr address)
{
  REQUIRE_CAPTURE (stream);
  CUgraphNode node = NULL;
  REQUIRE_SUCCESS (cuGraphAddMemFreeNode (&node, stream->capture->graph, stream->frontier,
                                          stream->frontier_count, address));
  return softgpu_set_frontier (stream, &node, 1, false);
}

void
softgpu_forget_captured (CUevent event)
{
  free (event->captured);
  event->captured = NULL;
  event->capture_id = 0;
}

/* An external record is a node of the graph; any other only marks a place in the capture.  */
CUresult
softgpu_capture_record (CUstream stream, CUevent event, bool external)
{
  REQUIRE_CAPTURE (stream);
  CUgraphNode node = NULL;
  if (external)
    {
      REQUIRE_SUCCESS (add (stream, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &node));
      node->event = event;
      return CUDA_SUCCESS;
    }
  size_t bytes = stream->frontier_count * sizeof *event->captured;
  CUgraphNode *captured = realloc (event->captured, bytes ? bytes : 1);
  REQUIRE (captured, CUDA_ERROR_OUT_OF_MEMORY);
  if (bytes)
    memcpy (captured, stream->frontier, bytes);
  event->captured = captured;
  event->captured_count = stream->frontier_count;
  event->capture_id = stream->capture->id;
  return CUDA_SUCCESS;
}

CUresult
softgpu_capture_wait (CUstream stream, CUevent event, bool external)
{
  if (external && softgpu_capturing (stream))
    {
      CUgraphNode node = NULL;
      REQUIRE_SUCCESS (add (stream, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &node));
      node->event = event;
      return CUDA_SUCCESS;
    }
  struct capture *capture = event->capture_id ? softgpu_find_capture (event->capture_id) : NULL;
  if (!softgpu_capturing (stream))
    {
      REQUIRE (capture, CUDA_ERROR_CAPTURED_EVENT);
      REQUIRE (!default_stream (stream), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      softgpu_join_capture (stream, capture);
    }
  REQUIRE_CAPTURE (stream);
  CUresult rc = CUDA_SUCCESS;
  if (!capture)
    rc = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  else if (capture != stream->capture)
    {
      capture->invalid = true;
      rc = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
  else
    rc = softgpu_set_frontier (stream, event->captured, event->captured_count, true);
  if (rc != CUDA_SUCCESS)
    stream->capture->invalid = true;
  return rc;
}
