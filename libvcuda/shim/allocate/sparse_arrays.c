/* Sparse arrays: memory of cuMemCreate that a stream maps into them and unmaps.

   A stream unmaps asynchronously, so what it unmaps stays charged until an event that is recorded
   behind it has passed.  */

#include "allocate/sparse_arrays.h"

#include <stdlib.h>

#include "compute/meters.h"
#include "memory/bindings.h"
#include "memory/blocks.h"
#include "memory/settle.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

/* Bindings that a stream ends before EVENT. Without an event they end with the context.  */
struct ending
{
  CUevent event;
  CUcontext context;
  struct vcuda_binding *bindings;
  struct ending *next;
};

static struct ending *endings;

/* Ends the bindings of LIST when STREAM has done all that is submitted to it by now.  */
static void
end_after (CUstream stream, CUcontext context, struct vcuda_binding *list)
{
  struct ending *ending = malloc (sizeof *ending);
  if (!ending)
    return; /* the charge stays until the process ends */
  *ending = (struct ending){ .context = context, .bindings = list, .next = endings };
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  bool entered = context && vcuda_enter_context (context);
  if (real.cuEventCreate (&ending->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
    ending->event = NULL;
  else if (real.cuEventRecord (ending->event, stream) != CUDA_SUCCESS)
    {
      real.cuEventDestroy_v2 (ending->event);
      ending->event = NULL;
    }
  vcuda_leave_context (entered);
  vcuda_own_calls_end (mode);
  __atomic_store_n (&endings, ending, __ATOMIC_RELAXED);
}

bool
vcuda_sparse_arrays_settle (void)
{
  bool any = false;
  if (!__atomic_load_n (&endings, __ATOMIC_RELAXED) || vcuda_thread ()->in_driver)
    return false;
  vcuda_blocks_lock ();
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  for (struct ending **at = &endings; *at;)
    {
      struct ending *ending = *at;
      if (!ending->event || real.cuEventQuery (ending->event) != CUDA_SUCCESS)
        {
          at = &ending->next;
          continue;
        }
      __atomic_store_n (at, ending->next, __ATOMIC_RELAXED);
      real.cuEventDestroy_v2 (ending->event);
      vcuda_bindings_end_list (ending->bindings);
      free (ending);
      any = true;
    }
  vcuda_own_calls_end (mode);
  vcuda_blocks_unlock ();
  return any;
}

void
vcuda_sparse_arrays_end_context (CUcontext context)
{
  if (!context)
    return;
  vcuda_blocks_lock ();
  vcuda_bindings_end_context (context);
  for (struct ending **at = &endings; *at;)
    {
      struct ending *ending = *at;
      if (ending->context != context)
        {
          at = &ending->next;
          continue;
        }
      __atomic_store_n (at, ending->next, __ATOMIC_RELAXED);
      /* The event has ended with its context.  */
      vcuda_bindings_end_list (ending->bindings);
      free (ending);
    }
  vcuda_blocks_unlock ();
}

static struct vcuda_place
place_of (const CUarrayMapInfo *one)
{
  struct vcuda_place place = { .kind = VCUDA_LEVEL, .extent = { 0, 1, 1 } };
  if (one->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
    {
      place.kind = VCUDA_MIP_TAIL;
      place.layer = one->subresource.miptail.layer;
      place.offset[0] = one->subresource.miptail.offset;
      place.extent[0] = one->subresource.miptail.size;
      return place;
    }
  place.level = one->subresource.sparseLevel.level;
  place.layer = one->subresource.sparseLevel.layer;
  place.offset[0] = one->subresource.sparseLevel.offsetX;
  place.offset[1] = one->subresource.sparseLevel.offsetY;
  place.offset[2] = one->subresource.sparseLevel.offsetZ;
  place.extent[0] = one->subresource.sparseLevel.extentWidth;
  place.extent[1] = one->subresource.sparseLevel.extentHeight;
  place.extent[2] = one->subresource.sparseLevel.extentDepth;
  return place;
}

static uint64_t
key_of (const CUarrayMapInfo *one)
{
  return one->resourceType == CU_RESOURCE_TYPE_ARRAY
             ? VCUDA_KEY (VCUDA_ARRAY, one->resource.array)
             : VCUDA_KEY (VCUDA_MIPMAPPED_ARRAY, one->resource.mipmap);
}

/* Follows the operations of LIST, which the driver has accepted.  */
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
    end_after (stream, context, ended);
}

#define MAP_ARRAYS(name, map_stream)                                                               \
  CUresult vcuda_##name (CUarrayMapInfo *list, unsigned int count, CUstream stream)                \
  {                                                                                                \
    VCUDA_PASS_ON (real.name (list, count, stream));                                               \
    vcuda_sparse_arrays_settle ();                                                                 \
    vcuda_blocks_lock ();                                                                          \
    CUresult rc = real.name (list, count, stream);                                                 \
    if (rc == CUDA_SUCCESS && list)                                                                \
      map_arrays (list, count, map_stream);                                                        \
    vcuda_blocks_unlock ();                                                                        \
    return rc;                                                                                     \
  }

MAP_ARRAYS (cuMemMapArrayAsync, stream)
MAP_ARRAYS (cuMemMapArrayAsync_ptsz, stream ? stream : CU_STREAM_PER_THREAD)

void
vcuda_sparse_arrays_forget (void)
{
  endings = NULL;
}
