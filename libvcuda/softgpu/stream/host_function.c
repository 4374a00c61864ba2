/* Host functions, which a stream calls. The submitting thread waits for the work before the call; a
   new thread makes the call.  */

#include <stdlib.h>

#include "graph/graph.h"
#include "stream/side_work.h"

CUresult
cuLaunchHostFunc (CUstream stream, CUhostFn function, void *data)
{
  REQUIRE_DRIVER ();
  REQUIRE (function, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_STREAM (context, stream);
  if (softgpu_capturing (stream))
    return softgpu_capture_host (stream,
                                 &(CUDA_HOST_NODE_PARAMS){ .fn = function, .userData = data });
  return softgpu_side_run (stream, function, data);
}

struct callback
{
  CUstreamCallback function;
  CUstream stream;
  void *data;
};

static void
call_back (void *argument)
{
  struct callback callback = *(struct callback *) argument;
  free (argument);
  callback.function (callback.stream, CUDA_SUCCESS, callback.data);
}

CUresult
cuStreamAddCallback (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (callback && flags == 0, CUDA_ERROR_INVALID_VALUE);
  struct callback *own = malloc (sizeof *own);
  REQUIRE (own, CUDA_ERROR_OUT_OF_MEMORY);
  *own = (struct callback){ callback, stream, data };
  CUresult rc = softgpu_side_run (stream, call_back, own);
  if (rc != CUDA_SUCCESS)
    free (own);
  return rc;
}
