/* The calls that make, upload and destroy executable graphs, for their memory nodes.  */

#include "memory/graph_memory.h"
#include "pages/pages.h"
#include "pages/pass_on.h"

#define INSTANTIATE(call)                                                                          \
  do                                                                                               \
    {                                                                                              \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      CUresult rc = VCUDA_CALL_DRIVER (call);                                                      \
      if (rc == CUDA_SUCCESS && !vcuda_thread ()->in_driver)                                       \
        vcuda_graph_memory_instantiated (*exec, graph);                                            \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuGraphInstantiate (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                          size_t log_size)
{
  INSTANTIATE (real.cuGraphInstantiate (exec, graph, error_node, log, log_size));
}

CUresult
vcuda_cuGraphInstantiate_v2 (CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                             size_t log_size)
{
  INSTANTIATE (real.cuGraphInstantiate_v2 (exec, graph, error_node, log, log_size));
}

CUresult
vcuda_cuGraphInstantiateWithFlags (CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
  INSTANTIATE (real.cuGraphInstantiateWithFlags (exec, graph, flags));
}

CUresult
vcuda_cuGraphInstantiateWithParams (CUgraphExec *exec, CUgraph graph,
                                    CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
  INSTANTIATE (real.cuGraphInstantiateWithParams (exec, graph, params));
}

CUresult
vcuda_cuGraphInstantiateWithParams_ptsz (CUgraphExec *exec, CUgraph graph,
                                         CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
  INSTANTIATE (real.cuGraphInstantiateWithParams_ptsz (exec, graph, params));
}

CUresult
vcuda_cuGraphUpload (CUgraphExec exec, CUstream stream)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return VCUDA_WITH_GRAPH_MEMORY (exec, real.cuGraphUpload (exec, stream));
}

CUresult
vcuda_cuGraphUpload_ptsz (CUgraphExec exec, CUstream stream)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  return VCUDA_WITH_GRAPH_MEMORY (exec, real.cuGraphUpload_ptsz (exec, stream));
}

CUresult
vcuda_cuGraphExecDestroy (CUgraphExec exec)
{
  VCUDA_PASS_ON (real.cuGraphExecDestroy (exec));
  /* Removed first: after the call the driver may give the same handle to another thread.  */
  vcuda_graph_memory_destroyed (exec);
  CUresult rc = VCUDA_CALL_DRIVER (real.cuGraphExecDestroy (exec));
  vcuda_graph_memory_settle ();
  return rc;
}

CUresult
vcuda_cuDeviceGraphMemTrim (CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = VCUDA_CALL_DRIVER (real.cuDeviceGraphMemTrim (device));
  vcuda_graph_memory_settle ();
  return rc;
}
