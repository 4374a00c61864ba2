/* Host functions, which a stream calls, and copies over the bus by the kind clock. The thread that
   submits a host function waits for the work before the call; a new thread makes the call.  */

#include "stream/side_work.h"

#include <stdlib.h>

#include "graph/graph.h"
#include "stream/streams.h"

static bool
busy (struct side_work *side)
{
  return side->running || (side->until_ns && side->until_ns > softgpu_now ());
}

bool
softgpu_side_busy (CUstream stream, CUdevice device)
{
  return busy (softgpu_side_of (stream, device));
}

void
softgpu_side_wait (CUstream stream, CUdevice device)
{
  struct side_work *side = softgpu_side_of (stream, device);
  while (busy (side))
    softgpu_sleep_until (side->running ? softgpu_now () + 200000 : side->until_ns);
}

struct call
{
  CUhostFn function;
  CUstreamCallback callback; /* NULL: function is called */
  CUstream stream;
  void *data;
  struct side_work *own, *all;
};

static void *
call_it (void *argument)
{
  struct call *call = argument;
  if (call->callback)
    call->callback (call->stream, CUDA_SUCCESS, call->data);
  else
    call->function (call->data);
  call->own->running--;
  call->all->running--;
  softgpu_own_slot (&driver.tie)->calls--;
  free (call);
  return NULL;
}

/* Has a thread call FUNCTION or CALLBACK once what was submitted to STREAM is done.  */
static CUresult
side_run (CUstream stream, CUhostFn function, CUstreamCallback callback, void *data)
{
  REQUIRE_SUCCESS (softgpu_drain_stream (stream));
  struct call *call = malloc (sizeof *call);
  REQUIRE (call, CUDA_ERROR_OUT_OF_MEMORY);
  CUdevice device = softgpu_stream_context (stream)->device;
  static struct side_work of_no_stream;
  *call = (struct call){ function, callback,      stream,
                         data,     &of_no_stream, &driver.device[device].side };
  if (!default_stream (stream))
    call->own = &stream->side;
  call->own->running++;
  call->all->running++;
  softgpu_own_slot (&driver.tie)->calls++; /* what a lock of this process waits for */
  pthread_t thread;
  if (pthread_create (&thread, NULL, call_it, call) == 0)
    pthread_detach (thread);
  else
    call_it (call);
  return CUDA_SUCCESS;
}

CUresult
cuLaunchHostFunc (CUstream stream, CUhostFn function, void *data)
{
  REQUIRE_ARGUMENTS (function);
  REQUIRE_STREAM (context, stream);
  if (softgpu_capturing (stream))
    return softgpu_capture_host (stream,
                                 &(CUDA_HOST_NODE_PARAMS){ .fn = function, .userData = data });
  return side_run (stream, function, NULL, data);
}

CUresult
cuStreamAddCallback (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
  REQUIRE_ARGUMENTS (callback && flags == 0);
  return side_run (stream, NULL, callback, data);
}
