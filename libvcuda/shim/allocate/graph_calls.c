/* The calls that make, upload and destroy executable graphs, for their memory nodes.  */

#include "memory/graph_memory.h"
#include "pages/pages.h"
#include "pages/pass_on.h"

#define INSTANTIATE(name, parameters, arguments)                                                   \
  CUresult vcuda_##name parameters                                                                 \
  {                                                                                                \
    if (!vcuda_ready ())                                                                           \
      return CUDA_ERROR_SYSTEM_NOT_READY;                                                          \
    CUresult rc = VCUDA_CALL_DRIVER (real.name arguments);                                         \
    if (rc == CUDA_SUCCESS && !vcuda_thread ()->in_driver)                                         \
      vcuda_graph_memory_instantiated (*exec, graph);                                              \
    return rc;                                                                                     \
  }

#define WITH_LOG                                                                                   \
  (CUgraphExec * exec, CUgraph graph, CUgraphNode * error_node, char *log, size_t log_size)
#define WITH_PARAMS (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS * params)

INSTANTIATE (cuGraphInstantiate, WITH_LOG, (exec, graph, error_node, log, log_size))
INSTANTIATE (cuGraphInstantiate_v2, WITH_LOG, (exec, graph, error_node, log, log_size))
INSTANTIATE (cuGraphInstantiateWithFlags,
             (CUgraphExec * exec, CUgraph graph, unsigned long long flags), (exec, graph, flags))
INSTANTIATE (cuGraphInstantiateWithParams, WITH_PARAMS, (exec, graph, params))
INSTANTIATE (cuGraphInstantiateWithParams_ptsz, WITH_PARAMS, (exec, graph, params))

#define UPLOAD(name)                                                                               \
  CUresult vcuda_##name (CUgraphExec exec, CUstream stream)                                        \
  {                                                                                                \
    if (!vcuda_ready ())                                                                           \
      return CUDA_ERROR_SYSTEM_NOT_READY;                                                          \
    return VCUDA_WITH_GRAPH_MEMORY (exec, real.name (exec, stream));                               \
  }

UPLOAD (cuGraphUpload)
UPLOAD (cuGraphUpload_ptsz)

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
