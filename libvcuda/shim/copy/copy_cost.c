/* Which copies stay within one GPU's memory.  */

#include "copy/copy_cost.h"

const char vcuda_copy_keys[VCUDA_COPY_KINDS][65];

/* An error of the driver means host memory: it knows only what was registered.  */
static bool
on_device (struct vcuda_end end)
{
  if (end.type != CU_MEMORYTYPE_UNIFIED)
    return end.type != CU_MEMORYTYPE_HOST;
  unsigned type = CU_MEMORYTYPE_HOST;
  CUresult rc = real.cuPointerGetAttribute (&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, end.address);
  return rc == CUDA_SUCCESS && type != CU_MEMORYTYPE_HOST;
}

bool
vcuda_copy_on_one_gpu (CUdeviceptr to, CUdeviceptr from)
{
  int there = 0, here = 0;
  if (vcuda_thread ()->in_driver)
    return false;
  return vcuda_gpu_count () <= 1 || !to || !from
         || real.cuPointerGetAttribute (&there, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, to)
                != CUDA_SUCCESS
         || real.cuPointerGetAttribute (&here, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, from)
                != CUDA_SUCCESS
         || there == here;
}

const void *
vcuda_copy_within (enum vcuda_copy_kind kind, struct vcuda_end to, struct vcuda_end from,
                   uint64_t bytes)
{
  if (vcuda_thread ()->in_driver || !on_device (from) || !on_device (to)
      || !vcuda_copy_on_one_gpu (to.address, from.address))
    return NULL;
  return vcuda_copy_key (kind, bytes);
}
