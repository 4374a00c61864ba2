/* Host functions, which a thread calls, and copies over the bus by the kind clock.  */

#include "stream/side_work.h"
#include "stream/streams.h"

#include <stdlib.h>

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
  void (*run) (void *);
  void *data;
  struct side_work *own, *all;
};

static void *
call_it (void *argument)
{
  struct call *call = argument;
  call->run (call->data);
  call->own->running--;
  call->all->running--;
  softgpu_own_slot (&driver.tie)->calls--;
  free (call);
  return NULL;
}

CUresult
softgpu_side_run (CUstream stream, void (*run) (void *), void *data)
{
  CUresult rc = softgpu_drain_stream (stream);
  struct call *call = rc == CUDA_SUCCESS ? malloc (sizeof *call) : NULL;
  if (!call)
    return rc == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : rc;
  CUdevice device = softgpu_stream_context (stream)->device;
  static struct side_work of_no_stream;
  *call = (struct call){ run, data, &of_no_stream, &driver.device[device].side };
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
