/* Events. A record is a command of its stream; it is stamped with the GPU's clock.  */

#include <sys/mman.h>

#include "graph/graph.h"
#include "memory/store.h"
#include "stream/ipc_event.h"
#include "stream/stamp.h"
#include "stream/streams.h"

static bool
valid (CUevent event)
{
  return event && event->kind == EVENT;
}

static struct softgpu_target
of_record (CUevent event)
{
  return (struct softgpu_target){ event->record, SOFTGPU_ONE };
}

CUresult
cuEventCreate (CUevent *pevent, unsigned int flags)
{
  REQUIRE_CONTEXT (context);
  const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  REQUIRE (pevent && (flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!(flags & CU_EVENT_INTERPROCESS) || flags & CU_EVENT_DISABLE_TIMING,
           CUDA_ERROR_INVALID_VALUE);
  CUevent event = softgpu_new_record (sizeof *event);
  REQUIRE (event, CUDA_ERROR_OUT_OF_MEMORY);
  *event = (struct CUevent_st){ .kind = EVENT, .context = context, .flags = flags };
  *pevent = event;
  return CUDA_SUCCESS;
}

CUresult
cuEventDestroy_v2 (CUevent event)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  softgpu_lock (&driver.tie);
  softgpu_harvest (event);
  softgpu_abandon (event);
  softgpu_unlock (&driver.tie);
  softgpu_forget_captured (event);
  if (event->shared)
    munmap (event->shared, STORE_PAGE);
  softgpu_retire (event, sizeof *event);
  return CUDA_SUCCESS;
}

CUresult
softgpu_record_event (CUevent event, CUstream stream)
{
  event->capture_id = 0;
  return softgpu_submit_to (stream, &(struct softgpu_command){ .kind = SOFTGPU_RECORD }, event,
                            NULL);
}

CUresult
cuEventRecordWithFlags (CUevent event, CUstream stream, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (flags == 0 || flags == CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_STREAM (context, stream);
  REQUIRE (context == event->context, CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_capturing (stream))
    return softgpu_capture_record (stream, event, flags == CU_EVENT_RECORD_EXTERNAL);
  REQUIRE_SUCCESS (softgpu_check_implicit (stream));
  softgpu_take_submit_time (&driver.tie);
  return softgpu_record_event (event, stream);
}

CUresult
cuEventRecord (CUevent event, CUstream stream)
{
  return cuEventRecordWithFlags (event, stream, 0);
}

CUresult
cuEventQuery (CUevent event)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (!event->capture_id, CUDA_ERROR_CAPTURED_EVENT);
  REQUIRE_SAFE ();
  if (softgpu_recorded_elsewhere (event))
    return softgpu_done_elsewhere (event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  REQUIRE (event->recorded, CUDA_SUCCESS);
  unsigned gpu = softgpu_gpu_of_event (event);
  softgpu_lock (&driver.tie);
  bool done = softgpu_reached_now (&driver.tie, gpu, of_record (event));
  softgpu_unlock (&driver.tie);
  softgpu_progress ();
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult
cuEventSynchronize (CUevent event)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (!event->capture_id, CUDA_ERROR_CAPTURED_EVENT);
  REQUIRE_SAFE ();
  if (softgpu_recorded_elsewhere (event))
    softgpu_wait_elsewhere (event);
  else if (event->recorded)
    softgpu_wait (&driver.tie, softgpu_gpu_of_event (event), of_record (event));
  softgpu_progress ();
  softgpu_pools_waited (event->context->device);
  return (CUresult) softgpu_own_slot (&driver.tie)->fault;
}

/* What passed on the GPU's clock between two events. By the kind clock the time in which the
   process waited for others is not counted.  */
CUresult
cuEventElapsedTime_v2 (float *milliseconds, CUevent start, CUevent end)
{
  REQUIRE_ARGUMENTS (milliseconds);
  REQUIRE (valid (start) && valid (end), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (start->recorded && end->recorded, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (!((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (start->context->device == end->context->device, CUDA_ERROR_INVALID_HANDLE);
  softgpu_lock (&driver.tie);
  softgpu_advance (driver.tie.state, softgpu_gpu_of_event (end), softgpu_now ());
  softgpu_harvest (start);
  softgpu_harvest (end);
  softgpu_unlock (&driver.tie);
  REQUIRE (start->stamped && end->stamped, CUDA_ERROR_NOT_READY);
  int64_t wall = (int64_t) (end->time_ns - start->time_ns);
  int64_t waited = (int64_t) (end->waited_ns - start->waited_ns);
  if (driver.tie.state->clock == SOFTGPU_KIND)
    wall -= waited;
  *milliseconds = (float) ((double) wall / 1e6);
  return CUDA_SUCCESS;
}

ALSO_NAMED (cuEventElapsedTime, cuEventElapsedTime_v2);

static CUresult
wait_on_gpu (CUstream stream, CUevent event)
{
  softgpu_lock (&driver.tie);
  uint64_t record = event->record;
  bool done = softgpu_reached_now (&driver.tie, softgpu_gpu_of_event (event), of_record (event));
  bool in_order = driver.tie.state->clock == SOFTGPU_KIND;
  if (in_order && !default_stream (stream) && stream->last < record)
    stream->last = record;
  softgpu_unlock (&driver.tie);
  if (done || in_order)
    return CUDA_SUCCESS;
  return softgpu_submit_to (
      stream, &(struct softgpu_command){ .kind = SOFTGPU_STREAM_WAIT, .after = record }, NULL,
      NULL);
}

/* The streams of one GPU wait for each other there; for another GPU's the host waits.  */
CUresult
cuStreamWaitEvent (CUstream stream, CUevent event, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (flags == 0 || flags == CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_STREAM (context, stream);
  if (softgpu_capturing (stream) || event->capture_id)
    return softgpu_capture_wait (stream, event, flags == CU_EVENT_WAIT_EXTERNAL);
  if (softgpu_recorded_elsewhere (event))
    softgpu_wait_elsewhere (event);
  else if (context->device != event->context->device && event->recorded)
    softgpu_wait (&driver.tie, softgpu_gpu_of_event (event), of_record (event));
  else if (event->recorded)
    return wait_on_gpu (stream, event);
  return CUDA_SUCCESS;
}
