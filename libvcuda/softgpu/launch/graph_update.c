/* Executable graphs: changing one without making it anew.  */

#include <stdlib.h>

#include "launch/graph_exec.h"

static struct step *
step_of (CUgraphExec exec, CUgraphNode node)
{
  for (size_t i = 0; exec_valid (exec) && node_valid (node) && i < exec->count; i++)
    if (exec->step[i].of == node)
      return &exec->step[i];
  return NULL;
}

CUresult
cuGraphExecKernelNodeSetParams_v2 (CUgraphExec exec, CUgraphNode node,
                                   const CUDA_KERNEL_NODE_PARAMS *params)
{
  REQUIRE_DRIVER ();
  struct step *step = step_of (exec, node);
  REQUIRE (step && step->node.type == CU_GRAPH_NODE_TYPE_KERNEL && params,
           CUDA_ERROR_INVALID_VALUE);
  return cuGraphKernelNodeSetParams_v2 (&step->node, params);
}

CUresult
cuGraphExecMemcpyNodeSetParams (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                CUcontext context)
{
  REQUIRE_DRIVER ();
  struct step *step = step_of (exec, node);
  REQUIRE (step && step->node.type == CU_GRAPH_NODE_TYPE_MEMCPY && copy && valid_context (context),
           CUDA_ERROR_INVALID_VALUE);
  step->node.copy = *copy;
  return CUDA_SUCCESS;
}

CUresult
cuGraphExecMemsetNodeSetParams (CUgraphExec exec, CUgraphNode node,
                                const CUDA_MEMSET_NODE_PARAMS *set, CUcontext context)
{
  REQUIRE_DRIVER ();
  struct step *step = step_of (exec, node);
  REQUIRE (step && step->node.type == CU_GRAPH_NODE_TYPE_MEMSET && set && valid_context (context),
           CUDA_ERROR_INVALID_VALUE);
  step->node.set = *set;
  return CUDA_SUCCESS;
}

CUresult
cuGraphNodeSetEnabled (CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
  REQUIRE_DRIVER ();
  struct step *step = step_of (exec, node);
  REQUIRE (step && step->node.type <= CU_GRAPH_NODE_TYPE_MEMSET, CUDA_ERROR_INVALID_VALUE);
  step->disabled = !enabled;
  return CUDA_SUCCESS;
}

CUresult
cuGraphNodeGetEnabled (CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
  REQUIRE_DRIVER ();
  struct step *step = step_of (exec, node);
  REQUIRE (step && enabled, CUDA_ERROR_INVALID_VALUE);
  *enabled = !step->disabled;
  return CUDA_SUCCESS;
}

/* Takes the parameters of a graph of the same shape, node by node in their order.  */
CUresult
cuGraphExecUpdate_v2 (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result)
{
  REQUIRE_DRIVER ();
  REQUIRE (exec_valid (exec) && graph_valid (graph) && result, CUDA_ERROR_INVALID_VALUE);
  *result = (CUgraphExecUpdateResultInfo){ .result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED };
  struct CUgraphExec_st made = { .graph = graph, .graph_id = graph->id };
  REQUIRE (!graph->memory_nodes && !exec->allocates, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CUresult rc = softgpu_lay_out (&made, graph);
  bool same = rc == CUDA_SUCCESS && made.count == exec->count;
  for (size_t i = 0; same && i < made.count; i++)
    same = made.step[i].node.type == exec->step[i].node.type
           && made.step[i].node.from_count == exec->step[i].node.from_count;
  for (size_t i = 0; same && i < made.count; i++)
    {
      made.step[i].of = exec->step[i].of;
      exec->step[i] = made.step[i];
    }
  free (made.step);
  if (!same)
    return rc == CUDA_SUCCESS ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : rc;
  result->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}
