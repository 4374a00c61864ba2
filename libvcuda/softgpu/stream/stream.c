/* Streams. A stream's commands share a lane of the process's queue, so a stream only remembers its
   last one.  */

#include "graph/graph.h"
#include "memory/allocations.h"
#include "stream/side_work.h"
#include "stream/streams.h"

static _Atomic uint64_t next_id = 2;

struct softgpu_target
softgpu_stream_target (CUstream stream, unsigned gpu)
{
  uint64_t submitted = softgpu_own_slot (&driver.tie)->gpu[gpu].head;
  if (default_stream (stream))
    return (struct softgpu_target){ submitted, SOFTGPU_BLOCKING };
  return (struct softgpu_target){ stream->last, SOFTGPU_ONE };
}

void
softgpu_drain (CUdevice device)
{
  unsigned gpu = gpu_index (device);
  softgpu_lock (&driver.tie);
  uint64_t submitted = softgpu_own_slot (&driver.tie)->gpu[gpu].head;
  softgpu_unlock (&driver.tie);
  softgpu_wait (&driver.tie, gpu, (struct softgpu_target){ submitted, SOFTGPU_ALL });
  softgpu_side_wait (NULL, device);
  softgpu_progress ();
}

CUresult
softgpu_drain_stream (CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE_STREAM (context, stream);
  REQUIRE_SUCCESS (softgpu_check_stream (stream));
  unsigned gpu = gpu_index (context->device);
  softgpu_lock (&driver.tie);
  struct softgpu_target target = softgpu_stream_target (stream, gpu);
  softgpu_unlock (&driver.tie);
  softgpu_wait (&driver.tie, gpu, target);
  softgpu_side_wait (stream, context->device);
  softgpu_progress ();
  return (CUresult) softgpu_own_slot (&driver.tie)->fault;
}

CUresult
cuStreamCreateWithPriority (CUstream *pstream, unsigned int flags, int priority)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (pstream && (flags & ~(unsigned) CU_STREAM_NON_BLOCKING) == 0, CUDA_ERROR_INVALID_VALUE);
  CUstream stream = softgpu_new_record (sizeof *stream);
  REQUIRE (stream, CUDA_ERROR_OUT_OF_MEMORY);
  priority = priority < GREATEST_PRIORITY ? GREATEST_PRIORITY : priority;
  priority = priority > LEAST_PRIORITY ? LEAST_PRIORITY : priority;
  *stream = (struct CUstream_st){ .kind = STREAM,
                                  .context = context,
                                  .flags = flags,
                                  .priority = priority,
                                  .id = atomic_fetch_add (&next_id, 1) };
  *pstream = stream;
  return CUDA_SUCCESS;
}

CUresult
cuStreamCreate (CUstream *pstream, unsigned int flags)
{
  return cuStreamCreateWithPriority (pstream, flags, LEAST_PRIORITY);
}

/* Queued work still runs; only its record is removed.  */
CUresult
cuStreamDestroy_v2 (CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_stream (stream), CUDA_ERROR_INVALID_HANDLE);
  softgpu_leave_capture (stream);
  softgpu_side_wait (stream, stream->context->device);
  softgpu_retire (stream, sizeof *stream);
  return CUDA_SUCCESS;
}

CUresult
cuStreamSynchronize (CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE_SAFE ();
  REQUIRE_SUCCESS (softgpu_drain_stream (stream));
  softgpu_pools_waited (softgpu_stream_context (stream)->device);
  return CUDA_SUCCESS;
}

CUresult
cuStreamQuery (CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE_STREAM (context, stream);
  REQUIRE_SAFE ();
  REQUIRE_SUCCESS (softgpu_check_stream (stream));
  unsigned gpu = gpu_index (context->device);
  softgpu_lock (&driver.tie);
  bool done = softgpu_reached_now (&driver.tie, gpu, softgpu_stream_target (stream, gpu));
  softgpu_unlock (&driver.tie);
  softgpu_progress ();
  return done && !softgpu_side_busy (stream, context->device) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* A function that answers with MEMBER of its stream, with OF_DEFAULT for a default stream.  */
#define ANSWER(function, type, member, of_default)                                                 \
  CUresult cuStream##function (CUstream stream, type *answer)                                      \
  {                                                                                                \
    REQUIRE_CONTEXT (context);                                                                     \
    REQUIRE (answer, CUDA_ERROR_INVALID_VALUE);                                                    \
    REQUIRE (default_stream (stream) || valid_stream (stream), CUDA_ERROR_INVALID_HANDLE);         \
    *answer = default_stream (stream) ? (of_default) : stream->member;                             \
    return CUDA_SUCCESS;                                                                           \
  }

ANSWER (GetFlags, unsigned int, flags, 0)
ANSWER (GetPriority, int, priority, LEAST_PRIORITY)
ANSWER (GetId, unsigned long long, id, 1)

CUresult
cuStreamGetCtx (CUstream stream, CUcontext *pctx)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (pctx, CUDA_ERROR_INVALID_VALUE);
  *pctx = softgpu_stream_context (stream);
  return *pctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult
cuStreamGetDevice (CUstream stream, CUdevice *device)
{
  REQUIRE_ARGUMENTS (device);
  CUcontext context;
  REQUIRE_SUCCESS (cuStreamGetCtx (stream, &context));
  *device = context->device;
  return CUDA_SUCCESS;
}
