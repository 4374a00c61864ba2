/* A graph that is launched into a captured stream.  */

#include "graph/capture.h"
#include "launch/graph_exec.h"

/* The steps of EXEC, one after the other as they would run, in a graph of their own.  */
static CUresult
as_graph (CUgraph *made, const struct CUgraphExec_st *exec)
{
  REQUIRE_SUCCESS (cuGraphCreate (made, 0));
  CUresult rc = CUDA_SUCCESS;
  CUgraphNode last = NULL;
  for (size_t i = 0; i < exec->count && rc == CUDA_SUCCESS; i++)
    if (!exec->step[i].disabled)
      rc = softgpu_copy_node (&last, *made, &exec->step[i].node, &last, last != NULL);
  if (rc != CUDA_SUCCESS)
    cuGraphDestroy (*made);
  return rc;
}

/* A launch into a captured stream is a child graph. Memory nodes can't be in one: two graphs would
   give out the same addresses.  */
CUresult
softgpu_capture_graph (CUstream stream, const struct CUgraphExec_st *exec)
{
  for (size_t i = 0; i < exec->count; i++)
    if (exec->step[i].node.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
        || exec->step[i].node.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
      {
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      }
  REQUIRE_CAPTURE (stream);
  CUgraph graph;
  REQUIRE_SUCCESS (as_graph (&graph, exec));
  return softgpu_capture_child (stream, graph);
}
