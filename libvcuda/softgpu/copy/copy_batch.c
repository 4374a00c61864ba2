/* Copies with attributes, alone and in batches. The attributes are hints of where managed memory
   may lie and of when a source may be read, neither of which differs here.  */

#include "array/shape.h"
#include "copy/copy.h"

static bool
known_attributes (CUmemcpySrcAccessOrder order, unsigned flags)
{
  return order >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM && order <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY
         && (flags & ~(unsigned) CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) == 0;
}

static CUresult
from_row (CUDA_MEMCPY3D *copy, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
          const CUmemcpyAttributes *attributes)
{
  REQUIRE (known_attributes (attributes->srcAccessOrder, attributes->flags),
           CUDA_ERROR_INVALID_VALUE);
  *copy = (CUDA_MEMCPY3D){ .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .srcDevice = src,
                           .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                           .dstDevice = dst,
                           .WidthInBytes = bytes,
                           .Height = 1,
                           .Depth = 1 };
  return CUDA_SUCCESS;
}

/* The bytes of an element, which the arrays among the operands say; *ELEMENT is 0 before the first.
 */
static CUresult
find_element (size_t *element, const CUmemcpy3DOperand *operand)
{
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
    return CUDA_SUCCESS;
  CUarray array = operand->op.array.array;
  REQUIRE (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY && array_valid (array),
           CUDA_ERROR_INVALID_VALUE);
  size_t here = array->row_bytes / array->shape.Width;
  REQUIRE (!*element || *element == here, CUDA_ERROR_INVALID_VALUE);
  *element = here;
  return CUDA_SUCCESS;
}

static size_t
packed (size_t said, size_t extent)
{
  return said ? said : extent;
}

static bool
fits (const CUmemcpy3DOperand *operand, const CUextent3D *extent, size_t element)
{
  size_t bytes;
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
    return !__builtin_mul_overflow (operand->op.array.offset.x, element, &bytes);
  size_t row = packed (operand->op.ptr.rowLength, extent->width);
  return row >= extent->width && !__builtin_mul_overflow (row, element, &bytes)
         && packed (operand->op.ptr.layerHeight, extent->height) >= extent->height;
}

#define SIDE(side, operand)                                                                        \
  do                                                                                               \
    if ((operand).type == CU_MEMCPY_OPERAND_TYPE_ARRAY)                                            \
      {                                                                                            \
        copy->side##MemoryType = CU_MEMORYTYPE_ARRAY;                                              \
        copy->side##Array = (operand).op.array.array;                                              \
        copy->side##XInBytes = (operand).op.array.offset.x * element;                              \
        copy->side##Y = (operand).op.array.offset.y;                                               \
        copy->side##Z = (operand).op.array.offset.z;                                               \
      }                                                                                            \
    else                                                                                           \
      {                                                                                            \
        copy->side##MemoryType = CU_MEMORYTYPE_UNIFIED;                                            \
        copy->side##Device = (operand).op.ptr.ptr;                                                 \
        copy->side##Pitch = packed ((operand).op.ptr.rowLength, op->extent.width) * element;       \
        copy->side##Height = packed ((operand).op.ptr.layerHeight, op->extent.height);             \
      }                                                                                            \
  while (0)

static CUresult
from_operation (CUDA_MEMCPY3D *copy, const CUDA_MEMCPY3D_BATCH_OP *op)
{
  REQUIRE (known_attributes (op->srcAccessOrder, op->flags), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (op->extent.width && op->extent.height && op->extent.depth, CUDA_ERROR_INVALID_VALUE);
  size_t element = 0, bytes;
  REQUIRE_SUCCESS (find_element (&element, &op->src));
  REQUIRE_SUCCESS (find_element (&element, &op->dst));
  element = element ? element : 1;
  REQUIRE (!__builtin_mul_overflow (op->extent.width, element, &bytes)
               && fits (&op->src, &op->extent, element) && fits (&op->dst, &op->extent, element),
           CUDA_ERROR_INVALID_VALUE);
  *copy = (CUDA_MEMCPY3D){ .WidthInBytes = bytes,
                           .Height = op->extent.height,
                           .Depth = op->extent.depth };
  SIDE (src, op->src);
  SIDE (dst, op->dst);
  return CUDA_SUCCESS;
}

CUresult
cuMemcpyWithAttributesAsync (CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                             CUmemcpyAttributes *attributes, CUstream stream)
{
  REQUIRE_ARGUMENTS (attributes);
  CUDA_MEMCPY3D copy;
  REQUIRE_SUCCESS (from_row (&copy, dst, src, bytes, attributes));
  return cuMemcpy3DAsync_v2 (&copy, stream);
}

CUresult
cuMemcpy3DWithAttributesAsync (CUDA_MEMCPY3D_BATCH_OP *op, unsigned long long flags,
                               CUstream stream)
{
  REQUIRE_ARGUMENTS (op && !flags);
  CUDA_MEMCPY3D copy;
  REQUIRE_SUCCESS (from_operation (&copy, op));
  return cuMemcpy3DAsync_v2 (&copy, stream);
}

/* The COUNT copies of which NTH gives each from LIST, or none of them. *FAILED, if
   it is not NULL, gets the index of the one that can't be made.  */
static CUresult
batch (CUresult (*nth) (CUDA_MEMCPY3D *copy, const void *list, size_t i), const void *list,
       size_t count, size_t *failed, CUstream stream)
{
  REQUIRE_CONTEXT (context);
  REQUIRE (count && stream && stream != CU_STREAM_LEGACY, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_stream_context (stream), CUDA_ERROR_INVALID_HANDLE);
  CUDA_MEMCPY3D copy;
  CUresult rc = CUDA_SUCCESS;
  for (size_t i = 0; i < count; i++)
    {
      rc = nth (&copy, list, i);
      if (rc == CUDA_SUCCESS)
        rc = softgpu_check_copy (&copy, stream);
      if (rc != CUDA_SUCCESS && failed)
        *failed = i;
      REQUIRE_SUCCESS (rc);
    }
  for (size_t i = 0; i < count && rc == CUDA_SUCCESS; i++)
    {
      nth (&copy, list, i);
      rc = cuMemcpy3DAsync_v2 (&copy, stream);
    }
  return rc;
}

struct rows
{
  const CUdeviceptr *dst, *src;
  const size_t *bytes;
  const CUmemcpyAttributes *attributes;
  const size_t *first; /* of the copies that each of the attributes is for */
  size_t attribute_count;
};

static CUresult
nth_row (CUDA_MEMCPY3D *copy, const void *list, size_t i)
{
  const struct rows *rows = list;
  size_t with = rows->attribute_count - 1;
  while (rows->first[with] > i)
    with--;
  return from_row (copy, rows->dst[i], rows->src[i], rows->bytes[i], &rows->attributes[with]);
}

/* cuda.h: the first is 0, each is greater than the one before, the last is less than COUNT.  */
static bool
each_has_attributes (const struct rows *rows, size_t count)
{
  bool right = rows->attribute_count && rows->first[0] == 0;
  for (size_t i = 1; i < rows->attribute_count && right; i++)
    right = rows->first[i] > rows->first[i - 1] && rows->first[i] < count;
  return right;
}

CUresult
cuMemcpyBatchAsync (CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                    CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                    size_t *failed, CUstream stream)
{
  const struct rows rows = { dst, src, bytes, attributes, first, attribute_count };
  REQUIRE_DRIVER ();
  if (failed)
    *failed = SIZE_MAX;
  REQUIRE (dst && src && bytes && attributes && first && each_has_attributes (&rows, count),
           CUDA_ERROR_INVALID_VALUE);
  return batch (nth_row, &rows, count, failed, stream);
}

CUresult
cuMemcpyBatchAsync_v2 (CUdeviceptr *dst, CUdeviceptr *src, size_t *bytes, size_t count,
                       CUmemcpyAttributes *attributes, size_t *first, size_t attribute_count,
                       CUstream stream)
{
  return cuMemcpyBatchAsync (dst, src, bytes, count, attributes, first, attribute_count, NULL,
                             stream);
}

static CUresult
nth_operation (CUDA_MEMCPY3D *copy, const void *list, size_t i)
{
  return from_operation (copy, (const CUDA_MEMCPY3D_BATCH_OP *) list + i);
}

CUresult
cuMemcpy3DBatchAsync (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
                      unsigned long long flags, CUstream stream)
{
  REQUIRE_DRIVER ();
  if (failed)
    *failed = SIZE_MAX;
  REQUIRE (list && !flags, CUDA_ERROR_INVALID_VALUE);
  return batch (nth_operation, list, count, failed, stream);
}

CUresult
cuMemcpy3DBatchAsync_v2 (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,
                         CUstream stream)
{
  return cuMemcpy3DBatchAsync (count, list, NULL, flags, stream);
}
