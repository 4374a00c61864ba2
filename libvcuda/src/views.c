/* What CUDA says about memory: the slice's view.  */

#include <time.h>

#include "charge.h"
#include "device.h"
#include "managed.h"
#include "pages.h"
#include "slot.h"

static uint64_t
smaller (uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* What the driver said of each GPU, good for one tick of the kernel's coarse clock (some
   milliseconds) and as long as the container holds what it held then.  */
static struct
{
  uint64_t tick, held, free_bytes, total;
} looks[VCUDA_MAX_GPUS];

static uint64_t
tick_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t) now.tv_sec * 1000000000u + (uint64_t) now.tv_nsec;
}

/* The driver's free memory counts too: the GPU may have less left than the slice promises, because
   contexts take some of it.  */
static CUresult
ask_driver (int gpu, size_t *free_bytes, size_t *total)
{
  vcuda_slots_reclaim_sometimes ();
  uint64_t held = gpu < 0 ? 0 : vcuda_held_bytes (gpu);
  CUresult rc = real.cuMemGetInfo_v2 (free_bytes, total);
  if (rc == CUDA_SUCCESS && gpu >= 0)
    {
      __atomic_store_n (&looks[gpu].free_bytes, *free_bytes, __ATOMIC_RELAXED);
      __atomic_store_n (&looks[gpu].total, *total, __ATOMIC_RELAXED);
      __atomic_store_n (&looks[gpu].held, held, __ATOMIC_RELAXED);
      __atomic_store_n (&looks[gpu].tick, tick_now (), __ATOMIC_RELEASE);
    }
  return rc;
}

CUresult
vcuda_cuMemGetInfo_v2 (size_t *free_bytes, size_t *total)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUcontext context;
  int gpu = -1;
  uint64_t held;
  if (!free_bytes || !total || vcuda_gpu_current (&gpu, &context) != CUDA_SUCCESS)
    return real.cuMemGetInfo_v2 (free_bytes, total); /* the driver has an error for it */
  if (vcuda_managed (gpu))
    {
      /* The driver's free memory says nothing: it makes room by moving pages out.  */
      vcuda_slots_reclaim_sometimes ();
      *total = vcuda_memory_limit (gpu);
      held = vcuda_held_bytes (gpu);
      *free_bytes = held < *total ? *total - held : 0;
      return CUDA_SUCCESS;
    }
  if (gpu >= 0 && __atomic_load_n (&looks[gpu].tick, __ATOMIC_ACQUIRE) == tick_now ()
      && __atomic_load_n (&looks[gpu].held, __ATOMIC_RELAXED) == (held = vcuda_held_bytes (gpu)))
    {
      *free_bytes = __atomic_load_n (&looks[gpu].free_bytes, __ATOMIC_RELAXED);
      *total = __atomic_load_n (&looks[gpu].total, __ATOMIC_RELAXED);
    }
  else
    {
      CUresult rc = ask_driver (gpu, free_bytes, total);
      if (rc != CUDA_SUCCESS)
        return rc;
      held = gpu < 0 ? 0 : vcuda_held_bytes (gpu);
    }
  uint64_t limit = smaller (vcuda_memory_limit (gpu), *total);
  *free_bytes = smaller (held < limit ? limit - held : 0, *free_bytes);
  *total = limit;
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
