/* Graphs: making nodes, and what they hold.  */

#include "graph.h"

#define OF_TYPE(node, wanted)                                                                      \
  REQUIRE ((node) && (node)->kind == GRAPH_NODE && (node)->type == CU_GRAPH_NODE_TYPE_##wanted,    \
           CUDA_ERROR_INVALID_VALUE)

/* A kernel's parameters are read when its node is made, as the one that this driver understands:
   how long it takes.  */
static CUresult
fill_kernel (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
  CUDA_KERNEL_NODE_PARAMS made = *params;
  if (!made.func)
    made.func = (CUfunction) made.kern;
  REQUIRE (made.func && made.func->kind == FUNCTION, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (made.gridDimX && made.gridDimY && made.gridDimZ && made.blockDimX && made.blockDimY
               && made.blockDimZ
               && (uint64_t) made.blockDimX * made.blockDimY * made.blockDimZ <= 1024,
           CUDA_ERROR_INVALID_VALUE);
  uint64_t time_ns;
  CUresult rc = softgpu_kernel_time (made.func, made.kernelParams, made.extra, &time_ns);
  if (rc != CUDA_SUCCESS)
    return rc;
  node->time_ns = node->value = time_ns;
  for (int i = 0; i < 8; i++)
    node->values[i] = made.func->time_param == i ? &node->value : NULL;
  made.kernelParams = made.func->time_param >= 0 ? node->values : NULL;
  made.extra = NULL;
  node->kernel = made;
  return CUDA_SUCCESS;
}

CUresult
softgpu_add_kernel (CUgraphNode *pnode, CUgraph graph, const CUgraphNode *from, size_t count,
                    const CUDA_KERNEL_NODE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  REQUIRE (pnode && params, CUDA_ERROR_INVALID_VALUE);
  struct CUgraphNode_st trial;
  CUresult rc = fill_kernel (&trial, params);
  if (rc == CUDA_SUCCESS)
    rc = softgpu_add_node (pnode, graph, CU_GRAPH_NODE_TYPE_KERNEL, from, count);
  return rc == CUDA_SUCCESS ? fill_kernel (*pnode, params) : rc;
}

CUresult
cuGraphAddKernelNode_v2 (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS *params)
{
  return softgpu_add_kernel (node, graph, from, count, params);
}

static CUDA_KERNEL_NODE_PARAMS
from_v1 (const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  return (CUDA_KERNEL_NODE_PARAMS){ .func = params->func,
                                    .gridDimX = params->gridDimX,
                                    .gridDimY = params->gridDimY,
                                    .gridDimZ = params->gridDimZ,
                                    .blockDimX = params->blockDimX,
                                    .blockDimY = params->blockDimY,
                                    .blockDimZ = params->blockDimZ,
                                    .sharedMemBytes = params->sharedMemBytes,
                                    .kernelParams = params->kernelParams,
                                    .extra = params->extra };
}

CUresult
cuGraphAddKernelNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                      const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  CUDA_KERNEL_NODE_PARAMS newer = from_v1 (params);
  return softgpu_add_kernel (node, graph, from, count, &newer);
}

CUresult
cuGraphKernelNodeGetParams_v2 (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  OF_TYPE (node, KERNEL);
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  *params = node->kernel;
  return CUDA_SUCCESS;
}

CUresult
cuGraphKernelNodeGetParams (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  CUDA_KERNEL_NODE_PARAMS newer;
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  CUresult rc = cuGraphKernelNodeGetParams_v2 (node, &newer);
  if (rc == CUDA_SUCCESS)
    *params = (CUDA_KERNEL_NODE_PARAMS_v1){ .func = newer.func,
                                            .gridDimX = newer.gridDimX,
                                            .gridDimY = newer.gridDimY,
                                            .gridDimZ = newer.gridDimZ,
                                            .blockDimX = newer.blockDimX,
                                            .blockDimY = newer.blockDimY,
                                            .blockDimZ = newer.blockDimZ,
                                            .sharedMemBytes = newer.sharedMemBytes,
                                            .kernelParams = newer.kernelParams,
                                            .extra = newer.extra };
  return rc;
}

CUresult
cuGraphKernelNodeSetParams_v2 (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  OF_TYPE (node, KERNEL);
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  return fill_kernel (node, params);
}

CUresult
cuGraphKernelNodeSetParams (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  CUDA_KERNEL_NODE_PARAMS newer = from_v1 (params);
  return cuGraphKernelNodeSetParams_v2 (node, &newer);
}

/* Add, get and set for the kinds whose parameters are kept as they are.  */
#define PLAIN(name, wanted, member, type)                                                          \
  CUresult cuGraph##name##NodeGetParams (CUgraphNode node, type *params)                           \
  {                                                                                                \
    REQUIRE_DRIVER ();                                                                             \
    OF_TYPE (node, wanted);                                                                        \
    REQUIRE (params, CUDA_ERROR_INVALID_VALUE);                                                    \
    *params = node->member;                                                                        \
    return CUDA_SUCCESS;                                                                           \
  }                                                                                                \
  CUresult cuGraph##name##NodeSetParams (CUgraphNode node, const type *params)                     \
  {                                                                                                \
    REQUIRE_DRIVER ();                                                                             \
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
  REQUIRE (copy && valid_context (context), CUDA_ERROR_INVALID_VALUE);
  CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEMCPY, from, count);
  if (rc == CUDA_SUCCESS)
    (*node)->copy = *copy;
  return rc;
}

CUresult
cuGraphAddMemsetNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                      const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
{
  REQUIRE (set && valid_context (context), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (set->elementSize == 1 || set->elementSize == 2 || set->elementSize == 4,
           CUDA_ERROR_INVALID_VALUE);
  CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_MEMSET, from, count);
  if (rc == CUDA_SUCCESS)
    (*node)->set = *set;
  return rc;
}

CUresult
cuGraphAddHostNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                    const CUDA_HOST_NODE_PARAMS *params)
{
  REQUIRE (params && params->fn, CUDA_ERROR_INVALID_VALUE);
  CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_HOST, from, count);
  if (rc == CUDA_SUCCESS)
    (*node)->host = *params;
  return rc;
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
  REQUIRE (graph && graph->kind == GRAPH && node, CUDA_ERROR_INVALID_VALUE);
  CUgraph clone;
  CUresult rc = cuGraphClone (&clone, child);
  if (rc == CUDA_SUCCESS)
    {
      rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_GRAPH, from, count);
      if (rc == CUDA_SUCCESS)
        (*node)->child = clone;
      else
        cuGraphDestroy (clone);
    }
  return rc;
}

CUresult
cuGraphChildGraphNodeGetGraph (CUgraphNode node, CUgraph *graph)
{
  REQUIRE_DRIVER ();
  OF_TYPE (node, GRAPH);
  REQUIRE (graph, CUDA_ERROR_INVALID_VALUE);
  *graph = node->child;
  return CUDA_SUCCESS;
}

#define EVENT_NODE(name, wanted)                                                                   \
  CUresult cuGraphAdd##name##Node (CUgraphNode *node, CUgraph graph, const CUgraphNode *from,      \
                                   size_t count, CUevent event)                                    \
  {                                                                                                \
    REQUIRE (event && event->kind == EVENT, CUDA_ERROR_INVALID_HANDLE);                            \
    CUresult rc = softgpu_add_node (node, graph, CU_GRAPH_NODE_TYPE_##wanted, from, count);        \
    if (rc == CUDA_SUCCESS)                                                                        \
      (*node)->event = event;                                                                      \
    return rc;                                                                                     \
  }                                                                                                \
  CUresult cuGraph##name##NodeGetEvent (CUgraphNode node, CUevent *event)                          \
  {                                                                                                \
    REQUIRE_DRIVER ();                                                                             \
    OF_TYPE (node, wanted);                                                                        \
    REQUIRE (event, CUDA_ERROR_INVALID_VALUE);                                                     \
    *event = node->event;                                                                          \
    return CUDA_SUCCESS;                                                                           \
  }                                                                                                \
  CUresult cuGraph##name##NodeSetEvent (CUgraphNode node, CUevent event)                           \
  {                                                                                                \
    REQUIRE_DRIVER ();                                                                             \
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
  REQUIRE_DRIVER ();
  (void) edges;
  REQUIRE (node && params, CUDA_ERROR_INVALID_VALUE);
  CUcontext current = softgpu_current_context ();
  switch (params->type)
    {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return softgpu_add_kernel (node, graph, from, count,
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
      return softgpu_add_alloc (node, graph, from, count,
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
