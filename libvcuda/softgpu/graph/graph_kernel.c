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
  CUresult rc = softgpu_kernel_cost (made.func, grid, block, made.kernelParams, made.extra, &cost);
  if (rc != CUDA_SUCCESS)
    return rc;
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
  REQUIRE_DRIVER ();
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
  REQUIRE_DRIVER ();
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
  REQUIRE_DRIVER ();
  REQUIRE (params, CUDA_ERROR_INVALID_VALUE);
  CUDA_KERNEL_NODE_PARAMS newer = from_v1 (params);
  return cuGraphKernelNodeSetParams_v2 (node, &newer);
}
