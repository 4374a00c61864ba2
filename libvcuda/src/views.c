/* What CUDA says about memory: the slice's view.  */

#include "charge.h"
#include "device.h"
#include "pages.h"
#include "slot.h"

static uint64_t
smaller (uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

static void
slice_view (int gpu, uint64_t *free_bytes, uint64_t *total_bytes)
{
  vcuda_slots_reclaim_sometimes ();
  uint64_t limit = smaller (vcuda_memory_limit (gpu), *total_bytes);
  uint64_t held = gpu < 0 ? 0 : vcuda_held_bytes (gpu);
  /* The GPU may hold less than the slice promises, when it is shared by more than us.  */
  *free_bytes = smaller (held < limit ? limit - held : 0, *free_bytes);
  *total_bytes = limit;
}

CUresult
vcuda_cuMemGetInfo_v2 (size_t *free_bytes, size_t *total_bytes)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUcontext context;
  int gpu = -1;
  CUresult rc = real.cuMemGetInfo_v2 (free_bytes, total_bytes);
  if (rc == CUDA_SUCCESS)
    rc = vcuda_gpu_current (&gpu, &context);
  if (rc != CUDA_SUCCESS)
    return rc;
  uint64_t free_now = *free_bytes;
  uint64_t total = *total_bytes;
  slice_view (gpu, &free_now, &total);
  *free_bytes = free_now;
  *total_bytes = total;
  return CUDA_SUCCESS;
}

/* The first version counts in 32 bits.  */
CUresult
vcuda_cuMemGetInfo (unsigned int *free_bytes, unsigned int *total_bytes)
{
  size_t free_now, total;
  CUresult rc = vcuda_cuMemGetInfo_v2 (&free_now, &total);
  if (rc != CUDA_SUCCESS)
    return rc;
  if (!free_bytes || !total_bytes)
    return CUDA_ERROR_INVALID_VALUE;
  *free_bytes = (unsigned int) smaller (free_now, UINT32_MAX);
  *total_bytes = (unsigned int) smaller (total, UINT32_MAX);
  return CUDA_SUCCESS;
}

CUresult
vcuda_cuDeviceTotalMem_v2 (size_t *bytes, CUdevice device)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUresult rc = real.cuDeviceTotalMem_v2 (bytes, device);
  if (rc == CUDA_SUCCESS)
    *bytes = smaller (*bytes, vcuda_memory_limit (vcuda_gpu_of_device (device)));
  return rc;
}

CUresult
vcuda_cuDeviceTotalMem (unsigned int *bytes, CUdevice device)
{
  size_t total;
  CUresult rc = vcuda_cuDeviceTotalMem_v2 (&total, device);
  if (rc == CUDA_SUCCESS && !bytes)
    return CUDA_ERROR_INVALID_VALUE;
  if (rc == CUDA_SUCCESS)
    *bytes = (unsigned int) smaller (total, UINT32_MAX);
  return rc;
}
