/* Copies with attributes, alone and in batches, and boxes between contexts. The attributes are
   hints of where managed memory may lie and of when a source may be read, neither of which differs
   here.  */

#include "array.h"
#include "graph.h"

CUresult
cuMemcpyWithAttributesAsync (CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                             CUmemcpyAttributes *attributes, CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (attributes && attributes->srcAccessOrder, CUDA_ERROR_INVALID_VALUE);
  return cuMemcpyAsync (dst, src, bytes, stream);
}

/* Which copy FAILED, where the program asks.  */
CUresult
cuMemcpyBatchAsync (CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                    CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                    size_t *failed, CUstream stream)
{
  REQUIRE_DRIVER ();
  if (failed)
    *failed = SIZE_MAX;
  REQUIRE (dst && src && bytes && count && stream && stream != CU_STREAM_LEGACY,
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE (attributes && first && attribute_count && attribute_count <= count && first[0] == 0,
           CUDA_ERROR_INVALID_VALUE);
  size_t with = 0;
  for (size_t i = 0; i < count; i++)
    {
      if (with + 1 < attribute_count && i == first[with + 1])
        with++;
      CUresult rc
          = cuMemcpyWithAttributesAsync (dst[i], src[i], bytes[i], &attributes[with], stream);
      if (rc != CUDA_SUCCESS && failed)
        *failed = i;
      if (rc != CUDA_SUCCESS)
        return rc;
    }
  return CUDA_SUCCESS;
}

CUresult
cuMemcpyBatchAsync_v2 (CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                       CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                       CUstream stream)
{
  return cuMemcpyBatchAsync (dst, src, bytes, count, attributes, first, attribute_count, NULL,
                             stream);
}

/* Bytes of one element; 0 where OPERAND is no array.  */
static size_t
element_bytes (const CUmemcpy3DOperand *operand)
{
  if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY || !operand->op.array.array)
    return 0;
  CUarray array = operand->op.array.array;
  return array->kind == ARRAY && array->shape.Width ? array->row_bytes / array->shape.Width : 0;
}

static size_t
packed (size_t said, size_t extent)
{
  return said ? said : extent;
}

#define SIDE(side, operand, element, copy, extent)                                                 \
  do                                                                                               \
    if ((operand)->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)                                           \
      {                                                                                            \
        (copy)->side##MemoryType = CU_MEMORYTYPE_ARRAY;                                            \
        (copy)->side##Array = (operand)->op.array.array;                                           \
        (copy)->side##XInBytes = (operand)->op.array.offset.x * (element);                         \
        (copy)->side##Y = (operand)->op.array.offset.y;                                            \
        (copy)->side##Z = (operand)->op.array.offset.z;                                            \
      }                                                                                            \
    else                                                                                           \
      {                                                                                            \
        (copy)->side##MemoryType = CU_MEMORYTYPE_UNIFIED;                                          \
        (copy)->side##Device = (operand)->op.ptr.ptr;                                              \
        (copy)->side##Pitch = packed ((operand)->op.ptr.rowLength, (extent)->width) * (element);   \
        (copy)->side##Height = packed ((operand)->op.ptr.layerHeight, (extent)->height);           \
      }                                                                                            \
  while (0)

CUresult
cuMemcpy3DWithAttributesAsync (CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                               CUstream stream)
{
  REQUIRE_DRIVER ();
  REQUIRE (op && !flags && op->srcAccessOrder, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (op->extent.width && op->extent.height && op->extent.depth, CUDA_ERROR_INVALID_VALUE);
  size_t element = element_bytes (&op->src);
  if (!element)
    element = element_bytes (&op->dst);
  if (!element)
    element = 1;
  CUDA_MEMCPY3D copy = { .WidthInBytes = op->extent.width * element,
                         .Height = op->extent.height,
                         .Depth = op->extent.depth };
  SIDE (src, &op->src, element, &copy, &op->extent);
  SIDE (dst, &op->dst, element, &copy, &op->extent);
  return cuMemcpy3DAsync_v2 (&copy, stream);
}

CUresult
cuMemcpy3DBatchAsync (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
                      unsigned long long flags, CUstream stream)
{
  REQUIRE_DRIVER ();
  if (failed)
    *failed = SIZE_MAX;
  REQUIRE (count && list && stream && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < count; i++)
    {
      CUresult rc = cuMemcpy3DWithAttributesAsync (&list[i], flags, stream);
      if (rc != CUDA_SUCCESS && failed)
        *failed = i;
      if (rc != CUDA_SUCCESS)
        return rc;
    }
  return CUDA_SUCCESS;
}

CUresult
cuMemcpy3DBatchAsync_v2 (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,
                         CUstream stream)
{
  return cuMemcpy3DBatchAsync (count, list, NULL, flags, stream);
}

static CUresult
from_peer (const CUDA_MEMCPY3D_PEER *copy, CUDA_MEMCPY3D *box)
{
  REQUIRE_DRIVER ();
  REQUIRE (copy, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY || valid_context (copy->srcContext),
           CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY || valid_context (copy->dstContext),
           CUDA_ERROR_INVALID_CONTEXT);
#define SAME(side)                                                                                 \
  .side##XInBytes = copy->side##XInBytes, .side##Y = copy->side##Y, .side##Z = copy->side##Z,      \
  .side##LOD = copy->side##LOD, .side##MemoryType = copy->side##MemoryType,                        \
  .side##Host = copy->side##Host, .side##Device = copy->side##Device,                              \
  .side##Array = copy->side##Array, .side##Pitch = copy->side##Pitch,                              \
  .side##Height = copy->side##Height
  *box = (CUDA_MEMCPY3D){ SAME (src), SAME (dst), .WidthInBytes = copy->WidthInBytes,
                          .Height = copy->Height, .Depth = copy->Depth };
  return CUDA_SUCCESS;
}

CUresult
cuMemcpy3DPeer (const CUDA_MEMCPY3D_PEER *copy)
{
  CUDA_MEMCPY3D box;
  CUresult rc = from_peer (copy, &box);
  return rc == CUDA_SUCCESS ? cuMemcpy3D_v2 (&box) : rc;
}

CUresult
cuMemcpy3DPeerAsync (const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
  CUDA_MEMCPY3D box;
  CUresult rc = from_peer (copy, &box);
  return rc == CUDA_SUCCESS ? cuMemcpy3DAsync_v2 (&box, stream) : rc;
}
