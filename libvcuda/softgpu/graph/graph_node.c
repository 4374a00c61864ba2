/* Graphs: nodes and their parameters.  */

#include "graph/graph.h"

/* Add, get and set for the kinds that keep their parameters as they are.  */
#define PLAIN(name, wanted, member, type)                                                          \
  NODE_ANSWER (name##NodeGetParams, wanted, member, type)                                          \
  CUresult cuGraph##name##NodeSetParams (CUgraphNode node, const type *params)                     \
  {                                                                                                \
    OF_TYPE (node, wanted);                                                                        \
    REQUIRE (params, CUDA_ERROR_INVALID_VALUE);                                                    \
    node->member = *params;                                                                        \
    return CUDA_SUCCESS;                                                                           \
  }

PLAIN (Memcpy, MEMCPY, copy, CUDA_MEMCPY3D)
PLAIN (Memset, MEMSET, set, CUDA_MEMSET_NODE_PARAMS)
PLAIN (Host, HOST, host, CUDA_HOST_NODE_PARAMS)

CUresult
cuGraphAddMemcpyNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                      const CUDA_MEMCPY3D *copy, CUcontext context)
{
  REQUIRE_ARGUMENTS (copy && valid_context (context));
  REQUIRE_SUCCESS (softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEMCPY, from, count));
  (*node)->copy = *copy;
  return CUDA_SUCCESS;
}

CUresult
cuGraphAddMemsetNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                      const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
{
  REQUIRE_ARGUMENTS (set);
  REQUIRE (valid_context (context), CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (set->elementSize == 1 || set->elementSize == 2 || set->elementSize == 4,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEMSET, from, count));
  (*node)->set = *set;
  return CUDA_SUCCESS;
}

CUresult
cuGraphAddHostNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                    const CUDA_HOST_NODE_PARAMS *params)
{
  REQUIRE_ARGUMENTS (params && params->fn);
  REQUIRE_SUCCESS (softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_HOST, from, count));
  (*node)->host = *params;
  return CUDA_SUCCESS;
}

CUresult
cuGraphAddEmptyNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count)
{
  return softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_EMPTY, from, count);
}

CUresult
cuGraphAddChildGraphNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                          CUgraph child)
{
  REQUIRE_ARGUMENTS (graph_valid (graph) && node);
  CUgraph clone;
  REQUIRE_SUCCESS (cuGraphClone (&clone, child));
  CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_GRAPH, from, count);
  if (rc == CUDA_SUCCESS)
    (*node)->child = clone;
  else
    cuGraphDestroy (clone);
  return rc;
}

NODE_ANSWER (ChildGraphNodeGetGraph, GRAPH, child, CUgraph)

#define EVENT_NODE(name, wanted)                                                                   \
  CUresult cuGraphAdd##name##Node (CUgraphNode *node, CUgraph graph, const CUgraphNode *from,      \
                                   size_t count, CUevent event)                                    \
  {                                                                                                \
    REQUIRE_DRIVER ();                                                                             \
    REQUIRE (event && event->kind == EVENT, CUDA_ERROR_INVALID_HANDLE);                            \
    REQUIRE_SUCCESS (softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_##wanted, from, count));    \
    (*node)->event = event;                                                                        \
    return CUDA_SUCCESS;                                                                           \
  }                                                                                                \
  NODE_ANSWER (name##NodeGetEvent, wanted, event, CUevent)                                         \
  CUresult cuGraph##name##NodeSetEvent (CUgraphNode node, CUevent event)                           \
  {                                                                                                \
    OF_TYPE (node, wanted);                                                                        \
    REQUIRE (event && event->kind == EVENT, CUDA_ERROR_INVALID_HANDLE);                            \
    node->event = event;                                                                           \
    return CUDA_SUCCESS;                                                                           \
  }

EVENT_NODE (EventRecord, EVENT_RECORD)
EVENT_NODE (EventWait, WAIT_EVENT)

/* The form that takes any kind of node.  */
CUresult
cuGraphAddNode_v2 (CUgraphNode *node, CUgraph graph, const CUgraphNode *from,
                   const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
  REQUIRE_ARGUMENTS (node && params);
  (void) edges;
  CUcontext current = softgpu_current_context ();
  switch (params->type)
    {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return cuGraphAddKernelNode_v2 (node, graph, from, count,
                                      (const CUDA_KERNEL_NODE_PARAMS *) &params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphAddMemcpyNode (node, graph, from, count, &params->memcpy.copyParams,
                                   params->memcpy.copyCtx ? params->memcpy.copyCtx : current);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return cuGraphAddMemsetNode (node, graph, from, count,
                                   (const CUDA_MEMSET_NODE_PARAMS *) &params->memset,
                                   params->memset.ctx ? params->memset.ctx : current);
    case CU_GRAPH_NODE_TYPE_HOST:
      return cuGraphAddHostNode (node, graph, from, count,
                                 (const CUDA_HOST_NODE_PARAMS *) &params->host);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return cuGraphAddChildGraphNode (node, graph, from, count, params->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode (node, graph, from, count);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphAddEventWaitNode (node, graph, from, count, params->eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphAddEventRecordNode (node, graph, from, count, params->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return cuGraphAddMemAllocNode (node, graph, from, count,
                                     (CUDA_MEM_ALLOC_NODE_PARAMS *) &params->alloc);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphAddMemFreeNode (node, graph, from, count, params->free.dptr);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult
cuGraphAddNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                CUgraphNodeParams *params)
{
  return cuGraphAddNode_v2 (node, graph, from, NULL, count, params);
}
