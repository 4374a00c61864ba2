/* Limits of a context. A value above the default takes device memory at once: a stack for each
   thread that the device can run at a time, the buffer of printf, the heap of malloc.  */

#include "context/context.h"
#include "memory/allocations.h"

#define LARGEST_STACK (512u << 10) /* of local memory, each thread */

static const struct
{
  CUlimit limit;
  size_t usual;
  uint64_t each; /* bytes of the device that one byte of the limit takes */
  size_t granule, most;
} limits[] = {
  { CU_LIMIT_STACK_SIZE, 1 << 10, SOFTGPU_WHOLE, 16, LARGEST_STACK },
  { CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20, 1, 1, SIZE_MAX },
  { CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20, 1, 1, SIZE_MAX },
};

#define LIMITS (sizeof limits / sizeof *limits)

_Static_assert (LIMITS == sizeof ((CUcontext) 0)->limit / sizeof *((CUcontext) 0)->limit,
                "a context has room for each");

static unsigned
place_of (CUlimit limit)
{
  unsigned at = 0;
  while (at < LIMITS && limits[at].limit != limit)
    at++;
  return at;
}

CUresult
cuCtxGetLimit (size_t *value, CUlimit limit)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (value, CUDA_ERROR_INVALID_VALUE);
  unsigned at = place_of (limit);
  REQUIRE (at < LIMITS, CUDA_ERROR_UNSUPPORTED_LIMIT);
  softgpu_lock (&driver.tie);
  *value = context->limit[at].value ? context->limit[at].value : limits[at].usual;
  softgpu_unlock (&driver.tie);
  return CUDA_SUCCESS;
}

/* VALUE 0: the usual one. With the lock held.  */
static CUresult
set_locked (CUcontext context, unsigned at, size_t value)
{
  uint64_t before = context->limit[at].bytes, after = 0;
  if (value > limits[at].usual)
    after = (value - limits[at].usual) * limits[at].each;
  if (after > before)
    REQUIRE (softgpu_charge_locked (context->device, after - before), CUDA_ERROR_OUT_OF_MEMORY);
  else
    softgpu_uncharge (context->device, before - after);
  context->limit[at].value = value;
  context->limit[at].bytes = after;
  return CUDA_SUCCESS;
}

CUresult
cuCtxSetLimit (CUlimit limit, size_t value)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (limit < CU_LIMIT_MAX, CUDA_ERROR_UNSUPPORTED_LIMIT);
  unsigned at = place_of (limit);
  if (at == LIMITS) /* takes none */
    return CUDA_SUCCESS;
  REQUIRE (value <= limits[at].most, CUDA_ERROR_INVALID_VALUE);
  size_t granule = limits[at].granule;
  value = value ? (value + granule - 1) / granule * granule : granule;
  softgpu_lock (&driver.tie);
  CUresult rc = set_locked (context, at, value);
  softgpu_unlock (&driver.tie);
  return rc;
}

void
softgpu_usual_limits (CUcontext context)
{
  softgpu_lock (&driver.tie);
  for (unsigned at = 0; at < LIMITS; at++)
    set_locked (context, at, 0);
  softgpu_unlock (&driver.tie);
}
