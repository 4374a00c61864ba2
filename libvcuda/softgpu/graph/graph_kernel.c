/* Graphs: kernel nodes.  */

#include "graph/graph.h"

/* A kernel's parameters are read when its node is made. This driver needs only those
   of its time and width.  */
static CUresult
fill_kernel (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
  CUDA_KERNEL_NODE_PARAMS made = *params;
  if (!made.func)
    made.func = (CUfunction) made.kern;
  const unsigned grid[] = { made.gridDimX, made.gridDimY, made.gridDimZ };
  const unsigned block[] = { made.blockDimX, made.blockDimY, made.blockDimZ };
  REQUIRE (function_valid (made.func) && softgpu_shape_fits (grid, block, made.sharedMemBytes),
           CUDA_ERROR_INVALID_VALUE);
  struct kernel_cost cost;
  REQUIRE_SUCCESS (
      softgpu_kernel_cost (made.func, grid, block, made.kernelParams, made.extra, &cost));
  node->time_ns = node->value = cost.time_ns;
  node->percent = cost.percent;
  node->width = cost.width;
  const int time_param = made.func->time_param, width_param = made.func->width_param;
  for (int i = 0; i < 8; i++)
    node->values[i] = time_param == i ? &node->value : width_param == i ? &node->percent : NULL;
  made.kernelParams = time_param >= 0 || width_param >= 0 ? node->values : NULL;
  made.extra = NULL;
  node->kernel = made;
  return CUDA_SUCCESS;
}

CUresult
cuGraphAddKernelNode_v2 (CUgraphNode *pnode, CUgraph graph, const CUgraphNode *from, size_t count,
                         const CUDA_KERNEL_NODE_PARAMS *params)
{
  REQUIRE_ARGUMENTS (pnode && params);
  struct CUgraphNode_st trial;
  REQUIRE_SUCCESS (fill_kernel (&trial, params));
  REQUIRE_SUCCESS (softgpu_add_node (pnode, graph, CU_GRAPH_NODE_TYPE_KERNEL, from, count));
  return fill_kernel (*pnode, params);
}

/* The members that both versions of the parameters have.  */
#define COMMON(params)                                                                             \
  .func = (params)->func, .gridDimX = (params)->gridDimX, .gridDimY = (params)->gridDimY,          \
  .gridDimZ = (params)->gridDimZ, .blockDimX = (params)->blockDimX,                                \
  .blockDimY = (params)->blockDimY, .blockDimZ = (params)->blockDimZ,                              \
  .sharedMemBytes = (params)->sharedMemBytes, .kernelParams = (params)->kernelParams,              \
  .extra = (params)->extra

CUresult
cuGraphAddKernelNode (CUgraphNode *node, CUgraph graph, const CUgraphNode *from, size_t count,
                      const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  REQUIRE_ARGUMENTS (params);
  const CUDA_KERNEL_NODE_PARAMS newer = { COMMON (params) };
  return cuGraphAddKernelNode_v2 (node, graph, from, count, &newer);
}

NODE_ANSWER (KernelNodeGetParams_v2, KERNEL, kernel, CUDA_KERNEL_NODE_PARAMS)

CUresult
cuGraphKernelNodeGetParams (CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  CUDA_KERNEL_NODE_PARAMS newer;
  REQUIRE_ARGUMENTS (params);
  REQUIRE_SUCCESS (cuGraphKernelNodeGetParams_v2 (node, &newer));
  *params = (CUDA_KERNEL_NODE_PARAMS_v1){ COMMON (&newer) };
  return CUDA_SUCCESS;
}

CUresult
cuGraphKernelNodeSetParams_v2 (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
  OF_TYPE (node, KERNEL);
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  return fill_kernel (node, params);
}

CUresult
cuGraphKernelNodeSetParams (CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
  REQUIRE_ARGUMENTS (params);
  const CUDA_KERNEL_NODE_PARAMS newer = { COMMON (params) };
  return cuGraphKernelNodeSetParams_v2 (node, &newer);
}
