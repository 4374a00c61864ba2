/* cuMemCreate, cuMemMap, and the calls that end what they made.  */

#include <stdlib.h>

#include "charge/charge.h"
#include "memory/blocks.h"
#include "memory/reserve.h"
#include "memory/room.h"
#include "pages/device.h"

CUresult
vcuda_cuMemCreate (CUmemGenericAllocationHandle *handle, size_t bytes,
                   const CUmemAllocationProp *prop, unsigned long long flags)
{
  if (!vcuda_ready ())
    return CUDA_ERROR_SYSTEM_NOT_READY;
  CUdevice device = -1;
  if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    device = prop->location.id;
  else if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
    device = prop->location.localized.deviceId;
  if (vcuda_thread ()->in_driver || device < 0)
    return real.cuMemCreate (handle, bytes, prop, flags); /* host memory, or an error */
  int gpu = vcuda_gpu_of_device (device);
  CUresult rc = vcuda_reserve (gpu, bytes);
  if (rc != CUDA_SUCCESS)
    return rc;
  struct vcuda_block *block = vcuda_block_new ();
  struct vcuda_room room = { 0 };
  do
    {
      vcuda_blocks_lock ();
      rc = block ? VCUDA_CALL_DRIVER (real.cuMemCreate (handle, bytes, prop, flags))
                 : CUDA_ERROR_OUT_OF_MEMORY;
      if (rc == CUDA_SUCCESS)
        vcuda_block_add (block, *handle, bytes, gpu);
      vcuda_blocks_unlock ();
    }
  while (rc == CUDA_ERROR_OUT_OF_MEMORY && block && vcuda_make_room (&room, gpu));
  if (rc != CUDA_SUCCESS)
    {
      free (block);
      vcuda_give_back (gpu, bytes);
    }
  return rc;
}

CUresult
vcuda_cuMemRelease (CUmemGenericAllocationHandle handle)
{
  VCUDA_WITH_BLOCKS (real.cuMemRelease (handle), vcuda_block_release (handle));
}

CUresult
vcuda_cuMemImportFromShareableHandle (CUmemGenericAllocationHandle *handle, void *shareable,
                                      CUmemAllocationHandleType type)
{
  VCUDA_WITH_BLOCKS (real.cuMemImportFromShareableHandle (handle, shareable, type),
                     vcuda_block_enter (*handle));
}

CUresult
vcuda_cuMemRetainAllocationHandle (CUmemGenericAllocationHandle *handle, void *address)
{
  VCUDA_WITH_BLOCKS (real.cuMemRetainAllocationHandle (handle, address),
                     vcuda_block_retain (*handle));
}

CUresult
vcuda_cuMemMap (CUdeviceptr start, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                unsigned long long flags)
{
  VCUDA_PASS_ON (real.cuMemMap (start, bytes, offset, handle, flags));
  struct vcuda_mapping *mapping = malloc (sizeof *mapping);
  if (!mapping)
    return CUDA_ERROR_OUT_OF_MEMORY;
  vcuda_blocks_lock ();
  struct vcuda_block *block = vcuda_block_use (handle);
  /* The driver waits until all devices are added to a multicast object, so the lock is
     released.  */
  bool may_wait = block && vcuda_block_gpu (block) < 0;
  if (may_wait)
    vcuda_blocks_unlock ();
  CUresult rc = VCUDA_CALL_DRIVER (real.cuMemMap (start, bytes, offset, handle, flags));
  if (may_wait)
    vcuda_blocks_lock ();
  *mapping = (struct vcuda_mapping){ start, bytes, block };
  if (rc == CUDA_SUCCESS && block)
    vcuda_mapping_add (mapping);
  else
    free (mapping);
  if (block)
    vcuda_block_unuse (block);
  vcuda_blocks_unlock ();
  return rc;
}

CUresult
vcuda_cuMemUnmap (CUdeviceptr start, size_t bytes)
{
  VCUDA_WITH_BLOCKS (real.cuMemUnmap (start, bytes), vcuda_mappings_remove (start, bytes));
}
