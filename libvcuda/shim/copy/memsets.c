/* Memory sets. The GPU fills host memory too, so the destination is not looked up.  */

#include "copy/copy_cost.h"
#include "thread/stream.h"

#define ROW(bits) vcuda_copy_key (VCUDA_SET_ROW, (uint64_t) count *bits / 8)
#define BOX(bits) vcuda_copy_key (VCUDA_SET_BOX, (uint64_t) width * height * bits / 8)

#define ROWS(type) (CUdeviceptr dst, type value, size_t count)
#define QUEUED_ROWS(type) (CUdeviceptr dst, type value, size_t count, CUstream stream)
#define BOXES(type) (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height)
#define QUEUED_BOXES(type)                                                                         \
  (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream)

/* The ten exports of one element size.  */
#define SETS(bits, type)                                                                           \
  VCUDA_COPY (cuMemsetD##bits, (CUdeviceptr_v1 dst, type value, unsigned int count),               \
              (dst, value, count), ROW (bits), NULL)                                               \
  VCUDA_COPY (cuMemsetD##bits##_v2, ROWS (type), (dst, value, count), ROW (bits), NULL)            \
  VCUDA_COPY (cuMemsetD##bits##_v2_ptds, ROWS (type), (dst, value, count), ROW (bits),             \
              CU_STREAM_PER_THREAD)                                                                \
  VCUDA_COPY (cuMemsetD##bits##Async, QUEUED_ROWS (type), (dst, value, count, stream), ROW (bits), \
              stream)                                                                              \
  VCUDA_COPY (cuMemsetD##bits##Async_ptsz, QUEUED_ROWS (type), (dst, value, count, stream),        \
              ROW (bits), vcuda_per_thread (stream))                                               \
  VCUDA_COPY (cuMemsetD2D##bits,                                                                   \
              (CUdeviceptr_v1 dst, unsigned int pitch, type value, unsigned int width,             \
               unsigned int height),                                                               \
              (dst, pitch, value, width, height), BOX (bits), NULL)                                \
  VCUDA_COPY (cuMemsetD2D##bits##_v2, BOXES (type), (dst, pitch, value, width, height),            \
              BOX (bits), NULL)                                                                    \
  VCUDA_COPY (cuMemsetD2D##bits##_v2_ptds, BOXES (type), (dst, pitch, value, width, height),       \
              BOX (bits), CU_STREAM_PER_THREAD)                                                    \
  VCUDA_COPY (cuMemsetD2D##bits##Async, QUEUED_BOXES (type),                                       \
              (dst, pitch, value, width, height, stream), BOX (bits), stream)                      \
  VCUDA_COPY (cuMemsetD2D##bits##Async_ptsz, QUEUED_BOXES (type),                                  \
              (dst, pitch, value, width, height, stream), BOX (bits), vcuda_per_thread (stream))

SETS (8, unsigned char)
SETS (16, unsigned short)
SETS (32, unsigned int)
