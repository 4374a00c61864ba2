/* Copies of one range of bytes.  */

#include "copy/copy_cost.h"

#define ON_DEVICE vcuda_copy_on_device (dst, src, bytes)
#define UNIFIED vcuda_copy_within (VCUDA_COPY_ROW, VCUDA_ADDRESS (dst), VCUDA_ADDRESS (src), bytes)
#define ROW vcuda_copy_key (VCUDA_COPY_ROW, bytes)

#define PLAIN (CUdeviceptr dst, CUdeviceptr src, size_t bytes)
#define QUEUED (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)

VCUDA_COPY (cuMemcpyDtoD, (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes),
            (dst, src, bytes), ON_DEVICE, NULL)
VCUDA_PLAIN_COPY (cuMemcpyDtoD_v2, PLAIN, (dst, src, bytes), ON_DEVICE)
VCUDA_COPY (cuMemcpyDtoDAsync,
            (CUdeviceptr_v1 dst, CUdeviceptr_v1 src, unsigned int bytes, CUstream stream),
            (dst, src, bytes, stream), ON_DEVICE, stream)
VCUDA_QUEUED_COPY (cuMemcpyDtoDAsync_v2, QUEUED, (dst, src, bytes, stream), ON_DEVICE)

VCUDA_PLAIN_COPY (cuMemcpy, PLAIN, (dst, src, bytes), UNIFIED)
VCUDA_QUEUED_COPY (cuMemcpyAsync, QUEUED, (dst, src, bytes, stream), UNIFIED)

VCUDA_QUEUED_COPY (cuMemcpyWithAttributesAsync,
                   (CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUmemcpyAttributes *attributes,
                    CUstream stream),
                   (dst, src, bytes, attributes, stream), UNIFIED)

/* Two contexts may be on one GPU.  */
VCUDA_PLAIN_COPY (cuMemcpyPeer,
                  (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes),
                  (dst, to, src, from, bytes), ON_DEVICE)
VCUDA_QUEUED_COPY (cuMemcpyPeerAsync,
                   (CUdeviceptr dst, CUcontext to, CUdeviceptr src, CUcontext from, size_t bytes,
                    CUstream stream),
                   (dst, to, src, from, bytes, stream), ON_DEVICE)

/* Arrays are device memory.  */
VCUDA_COPY (cuMemcpyAtoA,
            (CUarray dst, unsigned int to, CUarray src, unsigned int from, unsigned int bytes),
            (dst, to, src, from, bytes), ROW, NULL)
VCUDA_PLAIN_COPY (cuMemcpyAtoA_v2, (CUarray dst, size_t to, CUarray src, size_t from, size_t bytes),
                  (dst, to, src, from, bytes), ROW)
VCUDA_COPY (cuMemcpyAtoD, (CUdeviceptr_v1 dst, CUarray src, unsigned int from, unsigned int bytes),
            (dst, src, from, bytes), ROW, NULL)
VCUDA_PLAIN_COPY (cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t from, size_t bytes),
                  (dst, src, from, bytes), ROW)
VCUDA_COPY (cuMemcpyDtoA, (CUarray dst, unsigned int to, CUdeviceptr_v1 src, unsigned int bytes),
            (dst, to, src, bytes), ROW, NULL)
VCUDA_PLAIN_COPY (cuMemcpyDtoA_v2, (CUarray dst, size_t to, CUdeviceptr src, size_t bytes),
                  (dst, to, src, bytes), ROW)
