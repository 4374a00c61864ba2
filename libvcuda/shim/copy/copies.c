/* Copies of one range of bytes.  */

#include "copy/copy_cost.h"
#include "thread/stream.h"

#define ON_DEVICE vcuda_copy_on_device (dst, src, bytes)
#define UNIFIED vcuda_copy_within (VCUDA_COPY_ROW, VCUDA_ADDRESS (dst), VCUDA_ADDRESS (src), bytes)
#define ROW vcuda_copy_key (VCUDA_COPY_ROW, bytes)

#define PLAIN (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
#define QUEUED (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
#define PLAIN_32 (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes)
#define QUEUED_32 (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes, CUstream stream)

VCUDA_COPY (cuMemcpyDtoD, PLAIN_32, (dst, src, bytes), ON_DEVICE, NULL)
VCUDA_COPY (cuMemcpyDtoD_v2, PLAIN, (dst, src, bytes), ON_DEVICE, NULL)
VCUDA_COPY (cuMemcpyDtoD_v2_ptds, PLAIN, (dst, src, bytes), ON_DEVICE, CU_STREAM_PER_THREAD)
VCUDA_COPY (cuMemcpyDtoDAsync, QUEUED_32, (dst, src, bytes, stream), ON_DEVICE, stream)
VCUDA_COPY (cuMemcpyDtoDAsync_v2, QUEUED, (dst, src, bytes, stream), ON_DEVICE, stream)
VCUDA_COPY (cuMemcpyDtoDAsync_v2_ptsz, QUEUED, (dst, src, bytes, stream), ON_DEVICE,
            vcuda_per_thread (stream))

VCUDA_COPY (cuMemcpy, PLAIN, (dst, src, bytes), UNIFIED, NULL)
VCUDA_COPY (cuMemcpy_ptds, PLAIN, (dst, src, bytes), UNIFIED, CU_STREAM_PER_THREAD)
VCUDA_COPY (cuMemcpyAsync, QUEUED, (dst, src, bytes, stream), UNIFIED, stream)
VCUDA_COPY (cuMemcpyAsync_ptsz, QUEUED, (dst, src, bytes, stream), UNIFIED,
            vcuda_per_thread (stream))

#define WITH_ATTRIBUTES                                                                            \
  (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes *attributes, CUstream stream)

VCUDA_COPY (cuMemcpyWithAttributesAsync, WITH_ATTRIBUTES, (dst, src, bytes, attributes, stream),
            UNIFIED, stream)
VCUDA_COPY (cuMemcpyWithAttributesAsync_ptsz, WITH_ATTRIBUTES,
            (dst, src, bytes, attributes, stream), UNIFIED, vcuda_per_thread (stream))

/* Two contexts may be on one GPU.  */
#define PEERS (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes)
#define QUEUED_PEERS                                                                               \
  (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes, CUstream stream)

VCUDA_COPY (cuMemcpyPeer, PEERS, (dst, to, src, from, bytes), ON_DEVICE, NULL)
VCUDA_COPY (cuMemcpyPeer_ptds, PEERS, (dst, to, src, from, bytes), ON_DEVICE, CU_STREAM_PER_THREAD)
VCUDA_COPY (cuMemcpyPeerAsync, QUEUED_PEERS, (dst, to, src, from, bytes, stream), ON_DEVICE, stream)
VCUDA_COPY (cuMemcpyPeerAsync_ptsz, QUEUED_PEERS, (dst, to, src, from, bytes, stream), ON_DEVICE,
            vcuda_per_thread (stream))

/* Arrays are device memory.  */
#define ARRAYS (CUarray dst, size_t to, CUarray src, size_t from, size_t bytes)
#define FROM_ARRAY (CUdeviceptr dst, CUarray src, size_t from, size_t bytes)
#define TO_ARRAY (CUarray dst, size_t to, CUdeviceptr src, size_t bytes)
#define ARRAYS_32 (CUarray dst, unsigned int to, CUarray src, unsigned int from, unsigned int bytes)
#define FROM_ARRAY_32 (CUdeviceptr_v1 dst, CUarray src, unsigned int from, unsigned int bytes)
#define TO_ARRAY_32 (CUarray dst, unsigned int to, CUdeviceptr_v1 src, unsigned int bytes)

VCUDA_COPY (cuMemcpyAtoA, ARRAYS_32, (dst, to, src, from, bytes), ROW, NULL)
VCUDA_COPY (cuMemcpyAtoA_v2, ARRAYS, (dst, to, src, from, bytes), ROW, NULL)
VCUDA_COPY (cuMemcpyAtoA_v2_ptds, ARRAYS, (dst, to, src, from, bytes), ROW, CU_STREAM_PER_THREAD)
VCUDA_COPY (cuMemcpyAtoD, FROM_ARRAY_32, (dst, src, from, bytes), ROW, NULL)
VCUDA_COPY (cuMemcpyAtoD_v2, FROM_ARRAY, (dst, src, from, bytes), ROW, NULL)
VCUDA_COPY (cuMemcpyAtoD_v2_ptds, FROM_ARRAY, (dst, src, from, bytes), ROW, CU_STREAM_PER_THREAD)
VCUDA_COPY (cuMemcpyDtoA, TO_ARRAY_32, (dst, to, src, bytes), ROW, NULL)
VCUDA_COPY (cuMemcpyDtoA_v2, TO_ARRAY, (dst, to, src, bytes), ROW, NULL)
VCUDA_COPY (cuMemcpyDtoA_v2_ptds, TO_ARRAY, (dst, to, src, bytes), ROW, CU_STREAM_PER_THREAD)
