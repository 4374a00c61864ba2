/* The mock driver's modules, graphs and events: launches are accepted and take no time. Every graph
   has one node, which allocates a page; this driver does not report how much graphs hold.  */

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>

#include "mock/mock.h"

#define EXPORT __attribute__ ((visibility ("default")))

static int thing; /* every handle */

EXPORT CUresult
cuModuleLoadData (CUmodule *module, const void *image)
{
  *module = (CUmodule) (image ? &thing : NULL);
  return image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuModuleGetFunction (CUfunction *f, CUmodule module, const char *name)
{
  *f = (CUfunction) module;
  return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuGraphCreate (CUgraph *graph, unsigned int flags)
{
  (void) flags;
  *graph = (CUgraph) &thing;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuGraphGetNodes (CUgraph graph, CUgraphNode *nodes, size_t *count)
{
  if (nodes)
    *nodes = (CUgraphNode) graph;
  *count = 1;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuGraphNodeGetType (CUgraphNode node, CUgraphNodeType *type)
{
  *type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuGraphMemAllocNodeGetParams (CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
  *params = (CUDA_MEM_ALLOC_NODE_PARAMS){ .poolProps.location
                                          = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
                                          .bytesize = 4096 };
  return node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuGraphInstantiateWithFlags (CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
  (void) flags;
  *exec = (CUgraphExec) graph;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuGraphLaunch (CUgraphExec graph, CUstream stream)
{
  (void) stream;
  return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuCtxSynchronize (void)
{
  if (mock_in_wait)
    mock_in_wait ();
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuStreamIsCapturing (CUstream stream, CUstreamCaptureStatus *status)
{
  (void) stream;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuThreadExchangeStreamCaptureMode (CUstreamCaptureMode *mode)
{
  *mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuEventCreate (CUevent *event, unsigned int flags)
{
  (void) flags;
  *event = (CUevent) &thing;
  return CUDA_SUCCESS;
}

EXPORT CUresult
cuEventRecord (CUevent event, CUstream stream)
{
  (void) stream;
  if (mock_records)
    ++*mock_records;
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuEventQuery (CUevent event)
{
  return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult
cuEventElapsedTime (float *milliseconds, CUevent start, CUevent end)
{
  *milliseconds = mock_elapsed_ms;
  return start && end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
