/* Every form of a copy within the GPU, and of a memset: one call each, that writes all of `to` or
   of `to_array`.  */

#pragma once

#define __CUDA_API_VERSION_INTERNAL 1
#include "common/gpu.h"

#define ROWS 16
#define ELEMENT 16 /* of the arrays: four 32-bit channels */
#define PIECES 4   /* of a batch */

static size_t bytes;
static CUcontext context;
static CUdeviceptr to, from;
static CUarray to_array, from_array;

#define RECTANGLE                                                                                  \
  &(CUDA_MEMCPY2D) { .srcMemoryType = CU_MEMORYTYPE_DEVICE,                                        \
                     .srcDevice = from,                                                            \
                     .srcPitch = bytes / ROWS,                                                     \
                     .dstMemoryType = CU_MEMORYTYPE_UNIFIED,                                       \
                     .dstDevice = to,                                                              \
                     .dstPitch = bytes / ROWS,                                                     \
                     .WidthInBytes = bytes / ROWS,                                                 \
                     .Height = ROWS }
#define CUBE                                                                                       \
  &(CUDA_MEMCPY3D) { .srcMemoryType = CU_MEMORYTYPE_UNIFIED,                                       \
                     .srcDevice = from,                                                            \
                     .srcPitch = bytes / ROWS,                                                     \
                     .srcHeight = ROWS / 4,                                                        \
                     .dstMemoryType = CU_MEMORYTYPE_DEVICE,                                        \
                     .dstDevice = to,                                                              \
                     .dstPitch = bytes / ROWS,                                                     \
                     .dstHeight = ROWS / 4,                                                        \
                     .WidthInBytes = bytes / ROWS,                                                 \
                     .Height = ROWS / 4,                                                           \
                     .Depth = 4 }
#define PEER_CUBE                                                                                  \
  &(CUDA_MEMCPY3D_PEER) { .srcMemoryType = CU_MEMORYTYPE_DEVICE,                                   \
                          .srcDevice = from,                                                       \
                          .srcPitch = bytes / ROWS,                                                \
                          .srcHeight = ROWS / 4,                                                   \
                          .srcContext = context,                                                   \
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,                                   \
                          .dstDevice = to,                                                         \
                          .dstPitch = bytes / ROWS,                                                \
                          .dstHeight = ROWS / 4,                                                   \
                          .dstContext = context,                                                   \
                          .WidthInBytes = bytes / ROWS,                                            \
                          .Height = ROWS / 4,                                                      \
                          .Depth = 4 }
#define OPERATION                                                                                  \
  &(CUDA_MEMCPY3D_BATCH_OP) { .src                                                                 \
                              = { .type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = from },    \
                              .dst = { .type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr.ptr = to }, \
                              .extent = { bytes / ROWS, ROWS / 4, 4 },                             \
                              .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM }

static CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
static CUdeviceptr to_pieces[PIECES], from_pieces[PIECES];
static size_t piece_bytes[PIECES], first_piece, failed;
#define PIECEWISE to_pieces, from_pieces, piece_bytes, PIECES, &attributes, &first_piece, 1

/* C (export, arguments): copies. A (export, arguments): copies into the array. S (export,
   arguments, bits): sets elements to VALUE. The forms of 32-bit addresses have no memory on a
   64-bit driver.  */
#define VALUE 0x5a
#define FORMS(C, A, S)                                                                             \
  C (cuMemcpyDtoD_v2, (to, from, bytes))                                                           \
  C (cuMemcpyDtoD_v2_ptds, (to, from, bytes))                                                      \
  C (cuMemcpyDtoDAsync_v2, (to, from, bytes, stream))                                              \
  C (cuMemcpyDtoDAsync_v2_ptsz, (to, from, bytes, stream))                                         \
  C (cuMemcpy, (to, from, bytes))                                                                  \
  C (cuMemcpy_ptds, (to, from, bytes))                                                             \
  C (cuMemcpyAsync, (to, from, bytes, stream))                                                     \
  C (cuMemcpyAsync_ptsz, (to, from, bytes, stream))                                                \
  C (cuMemcpyWithAttributesAsync, (to, from, bytes, &attributes, stream))                          \
  C (cuMemcpyWithAttributesAsync_ptsz, (to, from, bytes, &attributes, stream))                     \
  C (cuMemcpyPeer, (to, context, from, context, bytes))                                            \
  C (cuMemcpyPeer_ptds, (to, context, from, context, bytes))                                       \
  C (cuMemcpyPeerAsync, (to, context, from, context, bytes, stream))                               \
  C (cuMemcpyPeerAsync_ptsz, (to, context, from, context, bytes, stream))                          \
  C (cuMemcpyAtoD_v2, (to, from_array, 0, bytes))                                                  \
  C (cuMemcpyAtoD_v2_ptds, (to, from_array, 0, bytes))                                             \
  A (cuMemcpyDtoA_v2, (to_array, 0, from, bytes))                                                  \
  A (cuMemcpyDtoA_v2_ptds, (to_array, 0, from, bytes))                                             \
  A (cuMemcpyAtoA_v2, (to_array, 0, from_array, 0, bytes))                                         \
  A (cuMemcpyAtoA_v2_ptds, (to_array, 0, from_array, 0, bytes))                                    \
  C (cuMemcpy2D_v2, (RECTANGLE))                                                                   \
  C (cuMemcpy2D_v2_ptds, (RECTANGLE))                                                              \
  C (cuMemcpy2DUnaligned_v2, (RECTANGLE))                                                          \
  C (cuMemcpy2DUnaligned_v2_ptds, (RECTANGLE))                                                     \
  C (cuMemcpy2DAsync_v2, (RECTANGLE, stream))                                                      \
  C (cuMemcpy2DAsync_v2_ptsz, (RECTANGLE, stream))                                                 \
  C (cuMemcpy3D_v2, (CUBE))                                                                        \
  C (cuMemcpy3D_v2_ptds, (CUBE))                                                                   \
  C (cuMemcpy3DAsync_v2, (CUBE, stream))                                                           \
  C (cuMemcpy3DAsync_v2_ptsz, (CUBE, stream))                                                      \
  C (cuMemcpy3DPeer, (PEER_CUBE))                                                                  \
  C (cuMemcpy3DPeer_ptds, (PEER_CUBE))                                                             \
  C (cuMemcpy3DPeerAsync, (PEER_CUBE, stream))                                                     \
  C (cuMemcpy3DPeerAsync_ptsz, (PEER_CUBE, stream))                                                \
  C (cuMemcpyBatchAsync, (PIECEWISE, &failed, stream))                                             \
  C (cuMemcpyBatchAsync_ptsz, (PIECEWISE, &failed, stream))                                        \
  C (cuMemcpyBatchAsync_v2, (PIECEWISE, stream))                                                   \
  C (cuMemcpyBatchAsync_v2_ptsz, (PIECEWISE, stream))                                              \
  C (cuMemcpy3DBatchAsync, (1, OPERATION, &failed, 0, stream))                                     \
  C (cuMemcpy3DBatchAsync_ptsz, (1, OPERATION, &failed, 0, stream))                                \
  C (cuMemcpy3DBatchAsync_v2, (1, OPERATION, 0, stream))                                           \
  C (cuMemcpy3DBatchAsync_v2_ptsz, (1, OPERATION, 0, stream))                                      \
  C (cuMemcpy3DWithAttributesAsync, (OPERATION, 0, stream))                                        \
  C (cuMemcpy3DWithAttributesAsync_ptsz, (OPERATION, 0, stream))                                   \
  SETS (S, 8)                                                                                      \
  SETS (S, 16)                                                                                     \
  SETS (S, 32)

#define SETS(S, bits)                                                                              \
  S (cuMemsetD##bits##_v2, (to, VALUE, bytes * 8 / bits), bits)                                    \
  S (cuMemsetD##bits##_v2_ptds, (to, VALUE, bytes * 8 / bits), bits)                               \
  S (cuMemsetD##bits##Async, (to, VALUE, bytes * 8 / bits, stream), bits)                          \
  S (cuMemsetD##bits##Async_ptsz, (to, VALUE, bytes * 8 / bits, stream), bits)                     \
  S (cuMemsetD2D##bits##_v2, (to, bytes / ROWS, VALUE, bytes / ROWS * 8 / bits, ROWS), bits)       \
  S (cuMemsetD2D##bits##_v2_ptds, (to, bytes / ROWS, VALUE, bytes / ROWS * 8 / bits, ROWS), bits)  \
  S (cuMemsetD2D##bits##Async, (to, bytes / ROWS, VALUE, bytes / ROWS * 8 / bits, ROWS, stream),   \
     bits)                                                                                         \
  S (cuMemsetD2D##bits##Async_ptsz,                                                                \
     (to, bytes / ROWS, VALUE, bytes / ROWS * 8 / bits, ROWS, stream), bits)
