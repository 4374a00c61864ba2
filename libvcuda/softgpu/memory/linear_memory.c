/* The calls that allocate, free and query memory. Their work is done in allocate.c and block.c.  */

#include "engine/account.h"
#include "graph/graph.h"
#include "memory/window.h"

CUresult
cuMemAlloc_v2 (CUdeviceptr *dptr, size_t bytes)
{
  REQUIRE_SAFE ();
  return softgpu_allocate ((uintptr_t *) dptr, bytes, ON_DEVICE, 0, NULL);
}

CUresult
cuMemAllocPitch_v2 (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                    unsigned int element)
{
  REQUIRE_DRIVER ();
  REQUIRE (pitch && width && height, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (element == 4 || element == 8 || element == 16, CUDA_ERROR_INVALID_VALUE);
  size_t row = (width + 511) & ~(size_t) 511;
  size_t bytes;
  REQUIRE (row >= width && !__builtin_mul_overflow (row, height, &bytes), CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (cuMemAlloc_v2 (dptr, bytes));
  *pitch = row;
  return CUDA_SUCCESS;
}

CUresult
cuMemAllocManaged (CUdeviceptr *dptr, size_t bytes, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!driver.tie.state->no_managed, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE_SAFE ();
  return softgpu_allocate ((uintptr_t *) dptr, bytes, MANAGED, flags, NULL);
}

static CUresult
release (CUdeviceptr dptr)
{
  CUresult rc = softgpu_release (dptr, COUNTED | GRAPHS);
  return rc == CUDA_ERROR_INVALID_VALUE ? softgpu_close_window (dptr, FREED) : rc;
}

CUresult
cuMemFree_v2 (CUdeviceptr dptr)
{
  REQUIRE_DRIVER ();
  REQUIRE_SAFE ();
  return dptr ? release (dptr) : CUDA_SUCCESS;
}

CUresult
cuMemFreeAsync (CUdeviceptr dptr, CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE_STREAM (context, stream);
  if (softgpu_capturing (stream))
    return softgpu_capture_free (stream, dptr);
  return release (dptr);
}

CUresult
cuMemAllocHost_v2 (void **pp, size_t bytes)
{
  REQUIRE_SAFE ();
  return softgpu_allocate ((uintptr_t *) pp, bytes, ON_HOST, 0, NULL);
}

CUresult
cuMemHostAlloc (void **pp, size_t bytes, unsigned int flags)
{
  const unsigned known
      = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  REQUIRE_DRIVER ();
  REQUIRE ((flags & ~known) == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  return softgpu_allocate ((uintptr_t *) pp, bytes, ON_HOST, flags, NULL);
}

CUresult
cuMemHostRegister_v2 (void *p, size_t bytes, unsigned int flags)
{
  const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP
                         | CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  REQUIRE_DRIVER ();
  REQUIRE (p && bytes && bytes <= UINTPTR_MAX - (uintptr_t) p && (flags & ~known) == 0,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  REQUIRE_CONTEXT (context);
  REQUIRE (!softgpu_any_block ((uintptr_t) p, bytes), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  struct block block = { .start = (uintptr_t) p,
                         .bytes = bytes,
                         .context = context,
                         .device = context->device,
                         .where = REGISTERED,
                         .flags = flags,
                         .fd = -1 };
  return softgpu_add_block (&block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult
cuMemHostUnregister (void *p)
{
  REQUIRE_DRIVER ();
  REQUIRE (p, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SAFE ();
  CUresult rc = softgpu_release ((uintptr_t) p, HOSTS_OWN);
  return rc == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : rc;
}

CUresult
cuMemFreeHost (void *p)
{
  REQUIRE_SAFE ();
  return softgpu_release ((uintptr_t) p, PINNED);
}

CUresult
cuMemGetInfo_v2 (size_t *free_bytes, size_t *total_bytes)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (free_bytes && total_bytes, CUDA_ERROR_INVALID_VALUE);
  unsigned gpu = gpu_index (context->device);
  uint64_t total = gpu_of (context->device)->memory_bytes;
  softgpu_progress ();
  softgpu_lock (&driver.tie);
  softgpu_reap (&driver.tie);
  struct softgpu_account account = softgpu_account (driver.tie.state, gpu);
  uint64_t held = account.physical + account.resident;
  softgpu_show_cgroup (driver.tie.state, gpu, softgpu_own_slot (&driver.tie)->pid_namespace, &total,
                       &held);
  softgpu_unlock (&driver.tie);
  *free_bytes = held < total ? total - held : 0;
  *total_bytes = total;
  return CUDA_SUCCESS;
}
