/* Events. One on an idle queue is stamped when recorded; otherwise it becomes a mark in the shared
   state, which the process that moves the device's clock past it fills in.  */

#include <sys/mman.h>

#include "graph/graph.h"
#include "memory/store.h"
#include "stream/ipc_event.h"
#include "stream/side_work.h"

static bool
valid (CUevent event)
{
  return event && event->kind == EVENT;
}

static unsigned
gpu_of_event (CUevent event)
{
  return driver.device[event->context->device].gpu;
}

static CUevent *
owner_of (CUevent event)
{
  return &driver.device[event->context->device].mark_owner[event->mark % SOFTGPU_MARKS];
}

/* With the lock held: takes the stamp over from the mark, if it is there.  */
static void
harvest (CUevent event)
{
  if (event->stamped || !event->recorded)
    return;
  struct attachment *tie = &driver.tie;
  unsigned gpu = gpu_of_event (event);
  if (event->mark >= softgpu_own_slot (tie)->gpu[gpu].marks_passed)
    return;
  const struct softgpu_mark *mark = softgpu_mark_at (tie->state, gpu, tie->slot, event->mark);
  event->time_ns = mark->time_ns;
  event->waited_ns = mark->waited_ns;
  event->stamped = true;
  *owner_of (event) = NULL;
}

/* With the lock held: the event gives up a mark that will not be asked for any more.  */
static void
abandon (CUevent event)
{
  if (event->recorded && !event->stamped)
    *owner_of (event) = NULL;
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
  harvest (event);
  abandon (event);
  softgpu_unlock (&driver.tie);
  softgpu_forget_captured (event);
  if (event->shared)
    munmap (event->shared, STORE_PAGE);
  softgpu_retire (event, sizeof *event);
  return CUDA_SUCCESS;
}

/* With the lock held. False when every mark is taken by an event that is still to come.  */
static bool
record (CUevent event)
{
  struct attachment *tie = &driver.tie;
  unsigned gpu = gpu_of_event (event);
  struct softgpu_slot_gpu *queue = &softgpu_own_slot (tie)->gpu[gpu];
  uint64_t now = softgpu_now ();
  softgpu_advance (tie->state, gpu, now);
  bool idle = queue->served_ns == queue->submitted_ns;
  if (!idle && queue->marks_made - queue->marks_passed == SOFTGPU_MARKS)
    return false;
  harvest (event);
  abandon (event);
  event->recorded = true;
  event->stamped = idle;
  event->target_ns = queue->submitted_ns;
  event->time_ns = now;
  event->waited_ns = queue->waited_ns;
  if (event->shared)
    softgpu_publish_record (event);
  if (!idle)
    {
      event->mark = queue->marks_made;
      CUevent *owner = owner_of (event);
      if (*owner)
        harvest (*owner);
      *owner = event;
      softgpu_mark_at (tie->state, gpu, tie->slot, event->mark)->target_ns = event->target_ns;
      queue->marks_made++;
    }
  return true;
}

CUresult
cuEventRecordWithFlags (CUevent event, CUstream stream, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (flags == 0 || flags == CU_EVENT_RECORD_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  CUcontext context = softgpu_stream_context (stream);
  REQUIRE (context,
           default_stream (stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (context == event->context, CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_capturing (stream))
    return softgpu_capture_record (stream, event, flags == CU_EVENT_RECORD_EXTERNAL);
  CUresult rc = softgpu_check_implicit (stream);
  if (rc != CUDA_SUCCESS)
    return rc;
  event->capture_id = 0;
  softgpu_side_wait (stream, context->device);
  struct attachment *tie = &driver.tie;
  unsigned gpu = gpu_of_event (event);
  for (;;)
    {
      softgpu_lock (tie);
      bool done = record (event);
      if (done && !default_stream (stream))
        stream->target_ns = event->target_ns;
      const struct softgpu_slot_gpu *queue = &softgpu_own_slot (tie)->gpu[gpu];
      uint64_t oldest
          = softgpu_mark_at (tie->state, gpu, tie->slot, queue->marks_passed)->target_ns;
      softgpu_unlock (tie);
      if (done)
        return CUDA_SUCCESS;
      softgpu_wait (tie, gpu, oldest);
    }
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
  CUresult rc = softgpu_check_unsafe ();
  if (rc == CUDA_SUCCESS && softgpu_recorded_elsewhere (event))
    return softgpu_done_elsewhere (event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  if (rc != CUDA_SUCCESS || !event->recorded)
    return rc;
  unsigned gpu = gpu_of_event (event);
  softgpu_lock (&driver.tie);
  softgpu_advance (driver.tie.state, gpu, softgpu_now ());
  bool done = softgpu_served (&driver.tie, gpu, event->target_ns);
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
  CUresult rc = softgpu_check_unsafe ();
  if (rc != CUDA_SUCCESS)
    return rc;
  if (softgpu_recorded_elsewhere (event))
    softgpu_wait_elsewhere (event);
  else if (event->recorded)
    softgpu_wait (&driver.tie, gpu_of_event (event), event->target_ns);
  softgpu_progress ();
  softgpu_pools_waited (event->context->device);
  return CUDA_SUCCESS;
}

/* The process's own time between two events: what others took in between is not counted.  */
CUresult
cuEventElapsedTime_v2 (float *milliseconds, CUevent start, CUevent end)
{
  REQUIRE_DRIVER ();
  REQUIRE (milliseconds, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (valid (start) && valid (end), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (start->recorded && end->recorded, CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (!((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (start->context->device == end->context->device, CUDA_ERROR_INVALID_HANDLE);
  softgpu_lock (&driver.tie);
  softgpu_advance (driver.tie.state, gpu_of_event (end), softgpu_now ());
  harvest (start);
  harvest (end);
  softgpu_unlock (&driver.tie);
  REQUIRE (start->stamped && end->stamped, CUDA_ERROR_NOT_READY);
  int64_t wall = (int64_t) (end->time_ns - start->time_ns);
  int64_t waited = (int64_t) (end->waited_ns - start->waited_ns);
  *milliseconds = (float) ((double) (wall - waited) / 1e6);
  return CUDA_SUCCESS;
}

CUresult
cuEventElapsedTime (float *milliseconds, CUevent start, CUevent end)
{
  return cuEventElapsedTime_v2 (milliseconds, start, end);
}

/* Within one GPU the order of submission is the order of work; across two the host waits.  */
CUresult
cuStreamWaitEvent (CUstream stream, CUevent event, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid (event), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (flags == 0 || flags == CU_EVENT_WAIT_EXTERNAL, CUDA_ERROR_INVALID_VALUE);
  CUcontext context = softgpu_stream_context (stream);
  REQUIRE (context,
           default_stream (stream) ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE);
  if (softgpu_capturing (stream) || event->capture_id)
    return softgpu_capture_wait (stream, event, flags == CU_EVENT_WAIT_EXTERNAL);
  if (softgpu_recorded_elsewhere (event))
    softgpu_wait_elsewhere (event);
  else if (context->device != event->context->device && event->recorded)
    softgpu_wait (&driver.tie, gpu_of_event (event), event->target_ns);
  if (context->device != event->context->device || softgpu_recorded_elsewhere (event))
    return CUDA_SUCCESS;
  softgpu_lock (&driver.tie);
  if (event->recorded && !default_stream (stream) && stream->target_ns < event->target_ns)
    stream->target_ns = event->target_ns;
  softgpu_unlock (&driver.tie);
  return CUDA_SUCCESS;
}
