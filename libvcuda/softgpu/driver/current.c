/* Each thread's stack of contexts.  */

#include "driver/driver.h"

#define STACK_DEPTH 64

static __thread CUcontext stack[STACK_DEPTH];
static __thread int depth;

CUcontext
softgpu_current_context (void)
{
  return depth ? stack[depth - 1] : NULL;
}

bool
softgpu_may_push_context (void)
{
  return depth < STACK_DEPTH;
}

void
softgpu_push_context (CUcontext context)
{
  stack[depth++] = context;
}

void
softgpu_pop_context (void)
{
  depth--;
}

CUcontext
softgpu_stream_context (CUstream stream)
{
  if (default_stream (stream))
    return softgpu_current_context ();
  return valid_stream (stream) && valid_context (stream->context) ? stream->context : NULL;
}

CUresult
cuCtxPushCurrent_v2 (CUcontext context)
{
  REQUIRE_DRIVER ();
  REQUIRE (valid_context (context) && softgpu_may_push_context (), CUDA_ERROR_INVALID_CONTEXT);
  softgpu_push_context (context);
  return CUDA_SUCCESS;
}

CUresult
cuCtxPopCurrent_v2 (CUcontext *pctx)
{
  REQUIRE_DRIVER ();
  REQUIRE (depth, CUDA_ERROR_INVALID_CONTEXT);
  if (pctx)
    *pctx = stack[depth - 1];
  depth--;
  return CUDA_SUCCESS;
}

CUresult
cuCtxSetCurrent (CUcontext context)
{
  REQUIRE_DRIVER ();
  REQUIRE (!context || valid_context (context), CUDA_ERROR_INVALID_CONTEXT);
  /* Replaces the top of the stack; NULL removes it.  */
  if (depth)
    depth--;
  if (context)
    stack[depth++] = context;
  return CUDA_SUCCESS;
}

CUresult
cuCtxGetCurrent (CUcontext *pctx)
{
  REQUIRE_ARGUMENTS (pctx);
  *pctx = softgpu_current_context ();
  return CUDA_SUCCESS;
}
