/* Managed memory in place of cuMemAlloc and cuMemAllocPitch.  */

#include "memory/managed.h"

#include "thread/message.h"

/* An attribute of the current context's device; 0: the driver does not know it.  */
static int
attribute (CUdevice_attribute which)
{
  CUdevice device;
  int value = 0;
  if (real.cuCtxGetDevice (&device) != CUDA_SUCCESS
      || real.cuDeviceGetAttribute (&value, which, device) != CUDA_SUCCESS)
    return 0;
  return value;
}

static void
report_unable (void)
{
  static bool reported;
  if (!__atomic_exchange_n (&reported, true, __ATOMIC_RELAXED))
    vcuda_report (VCUDA_LINE (VCUDA_GUEST_LIMITS,
                              "memory is overcommitted and this GPU's driver cannot page managed "
                              "memory",
                              "set memory-overcommit to 1 on this host"));
}

CUresult
vcuda_alloc_managed (CUdeviceptr *dptr, size_t bytes)
{
  /* Before Pascal, and with some kernel drivers, managed memory is never larger than the GPU's:
     more than that cannot be given out.  */
  if (!attribute (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS))
    {
      report_unable ();
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  return real.cuMemAllocManaged (dptr, bytes, CU_MEM_ATTACH_GLOBAL);
}

CUresult
vcuda_alloc_managed_pitch (CUdeviceptr *dptr, size_t *pitch, size_t width, size_t height,
                           unsigned int element)
{
  /* A row begins where a texture may: cuda.h requires it of textures on pitched memory, and drivers
     were seen to choose no larger pitch.  */
  size_t step = (size_t) attribute (CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  size_t most = (size_t) attribute (CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  if (!pitch || !width || !height || width > most
      || (element != 4 && element != 8 && element != 16))
    return real.cuMemAllocPitch_v2 (dptr, pitch, width, height, element); /* the driver has an error
                                                                             for it */
  size_t row = step ? (width + step - 1) / step * step : 0;
  /* No overflow: WIDTH times HEIGHT was reserved, so it is within a GPU's memory.  */
  CUresult rc = vcuda_alloc_managed (dptr, row * height);
  if (rc == CUDA_SUCCESS)
    *pitch = row;
  return rc;
}
