/* Batches of copies. A batch with any copy within the GPU is measured as a whole.  */

#include "copy/copy_cost.h"

static const void *
batch (const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count)
{
  uint64_t bytes = 0;
  if (!dsts || !srcs || !sizes)
    return NULL;
  for (size_t i = 0; i < count; i++)
    if (vcuda_copy_within (VCUDA_COPY_ROW, VCUDA_ADDRESS (dsts[i]), VCUDA_ADDRESS (srcs[i]),
                           sizes[i]))
      bytes += sizes[i];
  return bytes ? vcuda_copy_key (VCUDA_COPY_BATCH, bytes) : NULL;
}

static struct vcuda_end
end_of (const CUmemcpy3DOperand *operand)
{
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
    return (struct vcuda_end){ CU_MEMORYTYPE_ARRAY, 0 };
  return VCUDA_ADDRESS (operand->op.ptr.ptr);
}

/* Counted in elements: only an array's descriptor has their size, and the class of a size is coarse
   anyway.  */
static const void *
boxes (const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
  uint64_t elements = 0;
  for (size_t i = 0; list && i < count; i++)
    {
      const CUextent3D *extent = &list[i].extent;
      uint64_t here = (uint64_t) extent->width * extent->height * extent->depth;
      if (vcuda_copy_within (VCUDA_COPY_BOX, end_of (&list[i].dst), end_of (&list[i].src), here))
        elements += here;
    }
  return elements ? vcuda_copy_key (VCUDA_COPY_BATCH, elements) : NULL;
}

VCUDA_QUEUED_COPY (cuMemcpyBatchAsync,
                   (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                    CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                    size_t *failed, CUstream stream),
                   (dsts, srcs, sizes, count, attributes, first, attribute_count, failed, stream),
                   batch (dsts, srcs, sizes, count))
VCUDA_QUEUED_COPY (cuMemcpyBatchAsync_v2,
                   (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                    CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                    CUstream stream),
                   (dsts, srcs, sizes, count, attributes, first, attribute_count, stream),
                   batch (dsts, srcs, sizes, count))

VCUDA_QUEUED_COPY (cuMemcpy3DBatchAsync,
                   (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
                    unsigned long long flags, CUstream stream),
                   (count, list, failed, flags, stream), boxes (list, count))
VCUDA_QUEUED_COPY (cuMemcpy3DBatchAsync_v2,
                   (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,
                    CUstream stream),
                   (count, list, flags, stream), boxes (list, count))
VCUDA_QUEUED_COPY (cuMemcpy3DWithAttributesAsync,
                   (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream stream),
                   (op, flags, stream), boxes (op, 1))
