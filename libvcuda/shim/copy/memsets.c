/* Memory sets. The GPU fills host memory too, so the destination is not looked up.  */

#include "copy/copy_cost.h"

#define ROW(bits) vcuda_copy_key (VCUDA_SET_ROW, (uint64_t) count *bits / 8)
#define BOX(bits) vcuda_copy_key (VCUDA_SET_BOX, (uint64_t) width * height * bits / 8)

/* The ten exports of one element size.  */
#define SETS(bits, type)                                                                           \
  VCUDA_COPY (cuMemsetD##bits, (CUdeviceptr_v1 dst, type value, unsigned int count),               \
              (dst, value, count), ROW (bits), NULL)                                               \
  VCUDA_PLAIN_COPY (cuMemsetD##bits##_v2, (CUdeviceptr dst, type value, size_t count),             \
                    (dst, value, count), ROW (bits))                                               \
  VCUDA_QUEUED_COPY (cuMemsetD##bits##Async,                                                       \
                     (CUdeviceptr dst, type value, size_t count, CUstream stream),                 \
                     (dst, value, count, stream), ROW (bits))                                      \
  VCUDA_COPY (cuMemsetD2D##bits,                                                                   \
              (CUdeviceptr_v1 dst, unsigned int pitch, type value, unsigned int width,             \
               unsigned int height),                                                               \
              (dst, pitch, value, width, height), BOX (bits), NULL)                                \
  VCUDA_PLAIN_COPY (cuMemsetD2D##bits##_v2,                                                        \
                    (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height),      \
                    (dst, pitch, value, width, height), BOX (bits))                                \
  VCUDA_QUEUED_COPY (                                                                              \
      cuMemsetD2D##bits##Async,                                                                    \
      (CUdeviceptr dst, size_t pitch, type value, size_t width, size_t height, CUstream stream),   \
      (dst, pitch, value, width, height, stream), BOX (bits))

SETS (8, unsigned char)
SETS (16, unsigned short)
SETS (32, unsigned int)
