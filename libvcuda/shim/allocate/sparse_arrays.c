/* Sparse arrays: a stream maps memory of cuMemCreate into them and unmaps it.  */

#include "charge/alloc_map.h"
#include "memory/bindings.h"
#include "memory/blocks.h"
#include "memory/stream_unmaps.h"
#include "pages/device.h"
#include "pages/pass_on.h"
#include "thread/stream.h"

static struct vcuda_place
place_of (const CUarrayMapInfo *one)
{
  if (one->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
    return (struct vcuda_place){ .kind = VCUDA_MIP_TAIL,
                                 .layer = one->subresource.miptail.layer,
                                 .offset = { one->subresource.miptail.offset },
                                 .extent = { one->subresource.miptail.size, 1, 1 } };
  return (struct vcuda_place){
    .kind = VCUDA_LEVEL,
    .level = one->subresource.sparseLevel.level,
    .layer = one->subresource.sparseLevel.layer,
    .offset = { one->subresource.sparseLevel.offsetX, one->subresource.sparseLevel.offsetY,
                one->subresource.sparseLevel.offsetZ },
    .extent = { one->subresource.sparseLevel.extentWidth, one->subresource.sparseLevel.extentHeight,
                one->subresource.sparseLevel.extentDepth }
  };
}

static uint64_t
key_of (const CUarrayMapInfo *one)
{
  return one->resourceType == CU_RESOURCE_TYPE_ARRAY
             ? VCUDA_KEY (VCUDA_ARRAY, one->resource.array)
             : VCUDA_KEY (VCUDA_MIPMAPPED_ARRAY, one->resource.mipmap);
}

/* Applies the operations of LIST, which the driver has accepted, to the bindings.  */
static void
map_arrays (const CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
  int gpu;
  CUcontext context = NULL;
  struct vcuda_binding *ended = NULL;
  if (vcuda_gpu_of_stream (stream, &gpu, &context) != CUDA_SUCCESS)
    context = NULL;
  for (unsigned int i = 0; i < count; i++)
    {
      struct vcuda_place place = place_of (&list[i]);
      if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
        {
          struct vcuda_block *block = vcuda_block_use (list[i].memHandle.memHandle);
          struct vcuda_binding *binding = block ? vcuda_new_binding (&place, block) : NULL;
          if (binding)
            vcuda_bind (key_of (&list[i]), context, binding, &ended);
        }
      else
        vcuda_unbind (key_of (&list[i]), &place, &ended);
    }
  if (ended)
    vcuda_stream_unmaps_add (stream, context, ended);
}

#define MAP_ARRAYS(name, map_stream)                                                               \
  CUresult vcuda_##name (CUarrayMapInfo *list, unsigned int count, CUstream stream)                \
  {                                                                                                \
    VCUDA_PASS_ON (real.name (list, count, stream));                                               \
    vcuda_stream_unmaps_settle ();                                                                 \
    vcuda_blocks_lock ();                                                                          \
    CUresult rc = real.name (list, count, stream);                                                 \
    if (rc == CUDA_SUCCESS && list)                                                                \
      map_arrays (list, count, map_stream);                                                        \
    vcuda_blocks_unlock ();                                                                        \
    return rc;                                                                                     \
  }

MAP_ARRAYS (cuMemMapArrayAsync, stream)
MAP_ARRAYS (cuMemMapArrayAsync_ptsz, vcuda_per_thread (stream))
