/* The mock driver's sparse arrays and multicast objects. A stream unmaps when it is waited for, not
   before.  */

#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
#include <stdlib.h>

#define EXPORT __attribute__ ((visibility ("default")))

int mock_unmapping __attribute__ ((visibility ("hidden")));

EXPORT CUresult
cuMemMapArrayAsync (CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
  (void) stream;
  for (unsigned int i = 0; i < count; i++)
    if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
      mock_unmapping = 1;
  return list && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuDevicePrimaryCtxReset_v2 (CUdevice device)
{
  return device ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult
cuMulticastCreate (CUmemGenericAllocationHandle *object, const CUmulticastObjectProp *properties)
{
  *object = (CUmemGenericAllocationHandle) (uintptr_t) malloc (64);
  return properties->size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMulticastAddDevice (CUmemGenericAllocationHandle object, CUdevice device)
{
  (void) device;
  return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMulticastBindMem (CUmemGenericAllocationHandle object, size_t offset,
                    CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                    unsigned long long flags)
{
  (void) offset, (void) from, (void) flags;
  return object && memory && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMulticastBindMem_v2 (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                       CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                       unsigned long long flags)
{
  return device ? CUDA_ERROR_INVALID_DEVICE
                : cuMulticastBindMem (object, offset, memory, from, bytes, flags);
}

EXPORT CUresult
cuMulticastBindAddr (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr start,
                     size_t bytes, unsigned long long flags)
{
  (void) offset, (void) flags;
  return object && start && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult
cuMulticastBindAddr_v2 (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                        CUdeviceptr start, size_t bytes, unsigned long long flags)
{
  return device ? CUDA_ERROR_INVALID_DEVICE
                : cuMulticastBindAddr (object, offset, start, bytes, flags);
}

EXPORT CUresult
cuMulticastUnbind (CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                   size_t bytes)
{
  (void) device, (void) offset;
  return object && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
