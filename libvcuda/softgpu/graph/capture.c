/* Stream capture: beginning, ending, and what it forbids meanwhile.  */

#include <stdlib.h>

#include "graph/capture.h"

_Atomic unsigned softgpu_captures;

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;
static _Atomic uint64_t next_id = 1;
static __thread CUstreamCaptureMode own_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void
softgpu_join_capture (CUstream stream, struct capture *capture)
{
  pthread_mutex_lock (&guard);
  stream->capture = capture;
  stream->capture_next = capture->streams;
  capture->streams = stream;
  stream->frontier_count = 0;
  pthread_mutex_unlock (&guard);
}

struct capture *
softgpu_find_capture (uint64_t id)
{
  pthread_mutex_lock (&guard);
  struct capture *capture = captures;
  while (capture && capture->id != id)
    capture = capture->next;
  pthread_mutex_unlock (&guard);
  return capture;
}

static CUresult
begin (CUstream stream, CUstreamCaptureMode mode, CUgraph graph)
{
  struct capture *capture = softgpu_new_record (sizeof *capture);
  REQUIRE (capture, CUDA_ERROR_OUT_OF_MEMORY);
  capture->id = atomic_fetch_add (&next_id, 1);
  capture->origin = stream;
  capture->mode = mode;
  capture->thread = pthread_self ();
  capture->graph = graph;
  capture->into_callers_graph = graph != NULL;
  CUresult rc = graph ? CUDA_SUCCESS : cuGraphCreate (&capture->graph, 0);
  if (rc != CUDA_SUCCESS)
    {
      softgpu_retire (capture, sizeof *capture);
      return rc;
    }
  pthread_mutex_lock (&guard);
  capture->next = captures;
  captures = capture;
  pthread_mutex_unlock (&guard);
  softgpu_join_capture (stream, capture);
  softgpu_captures++;
  return CUDA_SUCCESS;
}

/* The legacy stream can't be captured; nor, here, can the per-thread one, which is the same.  */
static CUresult
may_begin (CUstream stream, CUstreamCaptureMode mode)
{
  REQUIRE ((unsigned) mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!default_stream (stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
  return CUDA_SUCCESS;
}

CUresult
cuStreamBeginCapture_v2 (CUstream stream, CUstreamCaptureMode mode)
{
  REQUIRE_DRIVER ();
  REQUIRE_SUCCESS (may_begin (stream, mode));
  return begin (stream, mode, NULL);
}

CUresult
cuStreamBeginCapture (CUstream stream)
{
  return cuStreamBeginCapture_v2 (stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult
cuStreamBeginCaptureToGraph (CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
                             const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
{
  REQUIRE_ARGUMENTS (graph && graph->kind == GRAPH && (dependencies || !count));
  (void) edges;
  REQUIRE_SUCCESS (may_begin (stream, mode));
  REQUIRE_SUCCESS (begin (stream, mode, graph));
  return softgpu_set_frontier (stream, dependencies, count, false);
}

static void
end (struct capture *capture)
{
  pthread_mutex_lock (&guard);
  UNLINK (captures, capture, next)
  for (CUstream next, stream = capture->streams; stream; stream = next)
    {
      next = stream->capture_next;
      stream->capture = NULL;
      stream->frontier_count = 0;
    }
  pthread_mutex_unlock (&guard);
  softgpu_captures--;
  softgpu_retire (capture, sizeof *capture);
}

CUresult
cuStreamEndCapture (CUstream stream, CUgraph *graph)
{
  REQUIRE_ARGUMENTS (graph);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE (softgpu_capturing (stream), CUDA_ERROR_ILLEGAL_STATE);
  struct capture *capture = stream->capture;
  REQUIRE (capture->origin == stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  REQUIRE (capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED
               || pthread_equal (capture->thread, pthread_self ()),
           CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CUresult rc = CUDA_SUCCESS;
  if (capture->invalid)
    rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!softgpu_joined (capture))
    rc = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  *graph = rc == CUDA_SUCCESS ? capture->graph : NULL;
  CUgraph made = capture->graph;
  bool ours = !capture->into_callers_graph;
  end (capture);
  if (rc != CUDA_SUCCESS && ours)
    cuGraphDestroy (made);
  return rc;
}

void
softgpu_leave_capture (CUstream stream)
{
  pthread_mutex_lock (&guard);
  struct capture *capture = stream->capture;
  if (capture)
    {
      UNLINK (capture->streams, stream, capture_next)
      capture->invalid = true;
    }
  pthread_mutex_unlock (&guard);
  if (capture && capture->origin == stream)
    {
      CUgraph made = capture->into_callers_graph ? NULL : capture->graph;
      end (capture);
      if (made)
        cuGraphDestroy (made);
    }
  free (stream->frontier);
}

CUresult
softgpu_check_unsafe (void)
{
  bool refused = false;
  if (!softgpu_captures)
    return CUDA_SUCCESS;
  pthread_mutex_lock (&guard);
  for (struct capture *capture = captures; capture; capture = capture->next)
    {
      bool own = pthread_equal (capture->thread, pthread_self ());
      bool forbids = own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                         : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                               && own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (forbids && own_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        refused = capture->invalid = true;
    }
  pthread_mutex_unlock (&guard);
  return refused ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult
softgpu_check_stream (CUstream stream)
{
  if (default_stream (stream))
    return softgpu_check_implicit (stream);
  if (!stream->capture)
    return CUDA_SUCCESS;
  stream->capture->invalid = true;
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Invalidates the captures of CONTEXT, if BLOCKING_ONLY those with a blocking stream; whether there
   were any.  */
static bool
invalidate (CUcontext context, bool blocking_only)
{
  bool any = false;
  pthread_mutex_lock (&guard);
  for (struct capture *capture = captures; capture; capture = capture->next)
    for (CUstream stream = capture->streams; stream; stream = stream->capture_next)
      if (stream->context == context && !(blocking_only && stream->flags & CU_STREAM_NON_BLOCKING))
        any = capture->invalid = true;
  pthread_mutex_unlock (&guard);
  return any;
}

CUresult
softgpu_check_implicit (CUstream stream)
{
  bool legacy = default_stream (stream) && stream != CU_STREAM_PER_THREAD;
  return softgpu_captures && legacy && invalidate (softgpu_current_context (), true)
             ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
             : CUDA_SUCCESS;
}

CUresult
softgpu_refuse_context (CUcontext context)
{
  return invalidate (context, false) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult
cuThreadExchangeStreamCaptureMode (CUstreamCaptureMode *mode)
{
  REQUIRE_ARGUMENTS (mode && (unsigned) *mode <= CU_STREAM_CAPTURE_MODE_RELAXED);
  CUstreamCaptureMode before = own_mode;
  own_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
