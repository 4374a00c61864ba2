/* Pointer attributes, the block around an address, and host registration.  */

#include "memory/allocations.h"

CUresult
cuMemGetAddressRange_v2 (CUdeviceptr *base, size_t *size, CUdeviceptr dptr)
{
  REQUIRE_DRIVER ();
  struct block block;
  REQUIRE (softgpu_find_block (dptr, &block), CUDA_ERROR_NOT_FOUND);
  if (base)
    *base = block.start;
  if (size)
    *size = block.bytes;
  return CUDA_SUCCESS;
}

CUresult
cuMemHostGetDevicePointer_v2 (CUdeviceptr *dptr, void *p, unsigned int flags)
{
  REQUIRE_DRIVER ();
  REQUIRE (dptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_any_block ((uintptr_t) p, 1), CUDA_ERROR_INVALID_VALUE);
  *dptr = (CUdeviceptr) p;
  return CUDA_SUCCESS;
}

CUresult
cuMemHostGetFlags (unsigned int *flags, void *p)
{
  REQUIRE_DRIVER ();
  struct block block;
  REQUIRE (flags && softgpu_find_block ((uintptr_t) p, &block), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (block.where == ON_HOST || block.where == REGISTERED, CUDA_ERROR_INVALID_VALUE);
  *flags = block.flags;
  return CUDA_SUCCESS;
}

static CUresult
describe (void *data, CUpointer_attribute attribute, const struct block *block, CUdeviceptr ptr)
{
  switch (attribute)
    {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *(CUcontext *) data = block->context;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *) data = block->where == ON_HOST || block->where == REGISTERED
                               ? CU_MEMORYTYPE_HOST
                               : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr *) data = ptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      REQUIRE (block->where == MANAGED || block->where == ON_HOST || block->where == REGISTERED,
               CUDA_ERROR_INVALID_VALUE);
      *(void **) data = (void *) ptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *(unsigned long long *) data = block->start;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *(unsigned *) data = block->where == MANAGED;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *) data = block->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(CUdeviceptr *) data = block->start;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t *) data = block->bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *(unsigned *) data = 1;
      return CUDA_SUCCESS;
    default:
      return attribute > 0 && attribute <= CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL
                 ? CUDA_ERROR_NOT_SUPPORTED
                 : CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult
cuPointerGetAttribute (void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
  REQUIRE_DRIVER ();
  struct block block;
  REQUIRE (data, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_find_block (ptr, &block), CUDA_ERROR_INVALID_VALUE);
  return describe (data, attribute, &block, ptr);
}

/* Unlike the single form, this one answers an unknown pointer with success and zeroes.  */
CUresult
cuPointerGetAttributes (unsigned int count, CUpointer_attribute *attributes, void **data,
                        CUdeviceptr ptr)
{
  REQUIRE_DRIVER ();
  struct block block = { 0 };
  REQUIRE (count && attributes && data, CUDA_ERROR_INVALID_VALUE);
  bool known = softgpu_find_block (ptr, &block);
  for (unsigned i = 0; i < count; i++)
    {
      CUresult rc = CUDA_SUCCESS;
      if (known)
        rc = describe (data[i], attributes[i], &block, ptr);
      else if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE
               || attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
        *(unsigned *) data[i] = 0;
      else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *(int *) data[i] = -2; /* what real drivers say of memory they don't know */
      else
        *(void **) data[i] = NULL;
      if (rc == CUDA_ERROR_NOT_SUPPORTED)
        return rc;
    }
  return CUDA_SUCCESS;
}
