/* Copies of rectangles and boxes, within and between contexts.  */

#include "driver/driver.h"

/* The members that one side of COPY has in a rectangle too, and those that only boxes have.  */
#define FLAT(side)                                                                                 \
  .side##XInBytes = copy->side##XInBytes, .side##Y = copy->side##Y,                                \
  .side##MemoryType = copy->side##MemoryType, .side##Host = copy->side##Host,                      \
  .side##Device = copy->side##Device, .side##Array = copy->side##Array
#define DEEP(side)                                                                                 \
  .side##Z = copy->side##Z, .side##LOD = copy->side##LOD, .side##Pitch = copy->side##Pitch,        \
  .side##Height = copy->side##Height

static CUDA_MEMCPY3D
from_2d (const CUDA_MEMCPY2D *copy)
{
  return (CUDA_MEMCPY3D){ FLAT (src),
                          FLAT (dst),
                          .srcPitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes,
                          .dstPitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes,
                          .WidthInBytes = copy->WidthInBytes,
                          .Height = copy->Height,
                          .Depth = 1 };
}

CUresult
cuMemcpy2D_v2 (const CUDA_MEMCPY2D *copy)
{
  REQUIRE_ARGUMENTS (copy);
  CUDA_MEMCPY3D box = from_2d (copy);
  return cuMemcpy3D_v2 (&box);
}

ALSO_NAMED (cuMemcpy2DUnaligned_v2, cuMemcpy2D_v2);

CUresult
cuMemcpy2DAsync_v2 (const CUDA_MEMCPY2D *copy, CUstream stream)
{
  REQUIRE_ARGUMENTS (copy);
  CUDA_MEMCPY3D box = from_2d (copy);
  return cuMemcpy3DAsync_v2 (&box, stream);
}

static CUresult
from_peer (const CUDA_MEMCPY3D_PEER *copy, CUDA_MEMCPY3D *box)
{
  REQUIRE_ARGUMENTS (copy);
  REQUIRE (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY || valid_context (copy->srcContext),
           CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE (copy->dstMemoryType == CU_MEMORYTYPE_ARRAY || valid_context (copy->dstContext),
           CUDA_ERROR_INVALID_CONTEXT);
  *box = (CUDA_MEMCPY3D){ FLAT (src),
                          FLAT (dst),
                          DEEP (src),
                          DEEP (dst),
                          .WidthInBytes = copy->WidthInBytes,
                          .Height = copy->Height,
                          .Depth = copy->Depth };
  return CUDA_SUCCESS;
}

CUresult
cuMemcpy3DPeer (const CUDA_MEMCPY3D_PEER *copy)
{
  CUDA_MEMCPY3D box;
  REQUIRE_SUCCESS (from_peer (copy, &box));
  return cuMemcpy3D_v2 (&box);
}

CUresult
cuMemcpy3DPeerAsync (const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
  CUDA_MEMCPY3D box;
  REQUIRE_SUCCESS (from_peer (copy, &box));
  return cuMemcpy3DAsync_v2 (&box, stream);
}
