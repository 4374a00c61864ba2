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
  REQUIRE (dptr && flags == 0 && softgpu_any_block ((uintptr_t) p, 1), CUDA_ERROR_INVALID_VALUE);
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

/* Answers ATTRIBUTE with VALUE, which cuda.h says is of TYPE.  */
#define ANSWER(attribute, type, value)                                                             \
  case CU_POINTER_ATTRIBUTE_##attribute:                                                           \
    *(type *) data = (value);                                                                      \
    return CUDA_SUCCESS

static CUresult
describe (void *data, CUpointer_attribute attribute, const struct block *block, CUdeviceptr ptr)
{
  bool on_host = block->where == ON_HOST || block->where == REGISTERED;
  REQUIRE (attribute != CU_POINTER_ATTRIBUTE_HOST_POINTER || on_host || block->where == MANAGED,
           CUDA_ERROR_INVALID_VALUE);
  switch (attribute)
    {
      ANSWER (CONTEXT, CUcontext, block->context);
      ANSWER (MEMORY_TYPE, unsigned, on_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
      ANSWER (DEVICE_POINTER, CUdeviceptr, ptr);
      ANSWER (HOST_POINTER, void *, (void *) ptr);
      ANSWER (BUFFER_ID, unsigned long long, block->start);
      ANSWER (IS_MANAGED, unsigned, block->where == MANAGED);
      ANSWER (DEVICE_ORDINAL, int, block->device);
      ANSWER (RANGE_START_ADDR, CUdeviceptr, block->start);
      ANSWER (RANGE_SIZE, size_t, block->bytes);
      ANSWER (MAPPED, unsigned, 1);
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
  REQUIRE (data && softgpu_find_block (ptr, &block), CUDA_ERROR_INVALID_VALUE);
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
