/* Copies of rectangles and boxes, each end of which may be host memory, device memory or an
   array.  */

#include "copy/copy_cost.h"

#define END(side)                                                                                  \
  (struct vcuda_end)                                                                               \
  {                                                                                                \
    copy->side##MemoryType, copy->side##MemoryType == CU_MEMORYTYPE_ARRAY ? 0 : copy->side##Device \
  }

#define BOX(depth)                                                                                 \
  copy ? vcuda_copy_within (VCUDA_COPY_BOX, END (dst), END (src),                                  \
                            (uint64_t) copy->WidthInBytes * copy->Height * (depth))                \
       : NULL

/* One call in three forms: 32-bit addresses, 64-bit addresses, the thread's own stream.  */
#define PLAIN(name, type, depth)                                                                   \
  VCUDA_COPY (name, (const type##_v1 *copy), (copy), BOX (depth), NULL)                            \
  VCUDA_PLAIN_COPY (name##_v2, (const type *copy), (copy), BOX (depth))

#define QUEUED(name, type, depth)                                                                  \
  VCUDA_COPY (name, (const type##_v1 *copy, CUstream stream), (copy, stream), BOX (depth), stream) \
  VCUDA_QUEUED_COPY (name##_v2, (const type *copy, CUstream stream), (copy, stream), BOX (depth))

PLAIN (cuMemcpy2D, CUDA_MEMCPY2D, 1)
PLAIN (cuMemcpy2DUnaligned, CUDA_MEMCPY2D, 1)
QUEUED (cuMemcpy2DAsync, CUDA_MEMCPY2D, 1)
PLAIN (cuMemcpy3D, CUDA_MEMCPY3D, copy->Depth)
QUEUED (cuMemcpy3DAsync, CUDA_MEMCPY3D, copy->Depth)

VCUDA_PLAIN_COPY (cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), (copy), BOX (copy->Depth))
VCUDA_QUEUED_COPY (cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream),
                   (copy, stream), BOX (copy->Depth))
