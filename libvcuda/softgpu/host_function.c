/* Functions of the program's that a stream calls. There is no thread here to call them from, so the
   thread that submits one waits for the work before it and calls the function itself.  */

#include "capture.h"

CUresult
cuLaunchHostFunc (CUstream stream, CUhostFn function, void *data)
{
  REQUIRE_DRIVER ();
  REQUIRE (function, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_stream_context (stream),
           default_stream (stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_capturing (stream))
    return softgpu_capture_host (stream,
                                 &(CUDA_HOST_NODE_PARAMS){ .fn = function, .userData = data });
  CUresult rc = softgpu_drain_stream (stream);
  if (rc == CUDA_SUCCESS)
    function (data);
  return rc;
}

CUresult
cuStreamAddCallback (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (callback && flags == 0, CUDA_ERROR_INVALID_VALUE);
  CUresult rc = softgpu_drain_stream (stream);
  if (rc == CUDA_SUCCESS)
    callback (stream, rc, data);
  return rc;
}
