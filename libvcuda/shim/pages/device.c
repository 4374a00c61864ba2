/* Finds the limits page's entry of a device by its UUID: device indexes depend on
   CUDA_VISIBLE_DEVICES.  */

#include "pages/device.h"

#include <string.h>

#include "pages/pages.h"
#include "thread/clock.h"
#include "thread/current_context.h"

#define CACHED_DEVICES 64

/* By device: index in the limits page + 1; 0: not known yet. A device's UUID never changes.  */
static int8_t cache[CACHED_DEVICES];

static int
find_uuid (const char *text)
{
  unsigned count = vcuda_gpu_count ();
  for (unsigned i = 0; i < count; i++)
    {
      const char *uuid = vcuda_pages.limits->gpu[i].uuid;
      if (memchr (uuid, 0, sizeof vcuda_pages.limits->gpu[i].uuid) && !strcmp (uuid, text))
        return (int) i;
    }
  return -1;
}

int
vcuda_gpu_of_uuid (const char *text)
{
  /* While the host writes the page, its sequence number is odd, and it differs after the search.
     The wait is bounded, because the host may have died while it wrote.  */
  for (int tries = 0;; tries++)
    {
      uint64_t before = __atomic_load_n (&vcuda_pages.limits->sequence, __ATOMIC_ACQUIRE);
      int gpu = find_uuid (text);
      __atomic_thread_fence (__ATOMIC_ACQUIRE);
      uint64_t after = __atomic_load_n (&vcuda_pages.limits->sequence, __ATOMIC_RELAXED);
      if (gpu >= 0 || tries == 100 || (before == after && before % 2 == 0))
        return gpu;
      vcuda_sleep_ns (1000000);
    }
}

/* PREFIX and 16 bytes as 8-4-4-4-12 hexadecimal digits.  */
static void
print_uuid (char text[48], const char *prefix, const CUuuid *uuid)
{
  static const char digits[] = "0123456789abcdef";
  char *out = text;
  while (*prefix)
    *out++ = *prefix++;
  for (int i = 0; i < 16; i++)
    {
      if (i == 4 || i == 6 || i == 8 || i == 10)
        *out++ = '-';
      *out++ = digits[(unsigned char) uuid->bytes[i] >> 4];
      *out++ = digits[(unsigned char) uuid->bytes[i] & 15];
    }
  *out = 0;
}

int
vcuda_gpu_of_device (CUdevice device)
{
  bool cached = device >= 0 && device < CACHED_DEVICES;
  int8_t known = cached ? __atomic_load_n (&cache[device], __ATOMIC_RELAXED) : 0;
  if (known)
    return known - 1;
  CUuuid uuid;
  /* The second version returns a MIG instance's own UUID; drivers before 11.4 have only the
     first.  */
  if (real.cuDeviceGetUuid_v2 (&uuid, device) != CUDA_SUCCESS
      && real.cuDeviceGetUuid (&uuid, device) != CUDA_SUCCESS)
    return -1;
  char text[48];
  print_uuid (text, "GPU-", &uuid);
  int gpu = vcuda_gpu_of_uuid (text);
  if (gpu < 0)
    {
      print_uuid (text, "MIG-", &uuid);
      gpu = vcuda_gpu_of_uuid (text);
    }
  /* Cache only a match: the host may still give the container a share of this device.  */
  if (cached && gpu >= 0)
    __atomic_store_n (&cache[device], (int8_t) (gpu + 1), __ATOMIC_RELAXED);
  return gpu;
}

CUresult
vcuda_gpu_ask_current (int *gpu, CUcontext *context)
{
  /* Read the epoch first: a context that ends while the driver answers must not be remembered.  */
  uint32_t epoch = __atomic_load_n (&vcuda_current_epoch, __ATOMIC_ACQUIRE);
  CUdevice device;
  CUresult rc = real.cuCtxGetCurrent (context);
  if (rc == CUDA_SUCCESS)
    rc = real.cuCtxGetDevice (&device);
  if (rc != CUDA_SUCCESS)
    return rc;
  *gpu = vcuda_gpu_of_device (device);
  vcuda_thread ()->current = (struct vcuda_current){ *context, epoch, (int16_t) *gpu, 0, 0 };
  return CUDA_SUCCESS;
}

CUresult
vcuda_gpu_of_stream (CUstream stream, int *gpu, CUcontext *context)
{
  CUcontext current;
  bool is_default = !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  if (is_default || real.cuStreamGetCtx (stream, context) != CUDA_SUCCESS)
    return vcuda_gpu_current (gpu, context);
  if (vcuda_gpu_current (gpu, &current) == CUDA_SUCCESS && current == *context)
    return CUDA_SUCCESS;
  /* The driver returns the device of the current context only, so make the stream's context
     current.  */
  CUdevice device;
  CUresult rc = real.cuCtxPushCurrent_v2 (*context);
  if (rc != CUDA_SUCCESS)
    return rc;
  rc = real.cuCtxGetDevice (&device);
  real.cuCtxPopCurrent_v2 (&current);
  if (rc == CUDA_SUCCESS)
    *gpu = vcuda_gpu_of_device (device);
  return rc;
}
