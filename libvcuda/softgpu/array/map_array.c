/* cuMemMapArrayAsync: memory of tile pools is mapped into arrays, and unmapped, in a stream's
   order.

   An operation that maps holds its memory from the call on. One that unmaps, or replaces a mapping,
   releases the old memory when its stream has reached it. map_arrays carries out the operations
   that are due; it is called at waits, at queries and before memory is counted.  */

#include <stdlib.h>

#include "array/shape.h"
#include "array/tiles.h"
#include "graph/graph.h"
#include "stream/side_work.h"
#include "stream/streams.h"

struct operation
{
  struct tiles *tiles;
  struct tile_box box;
  struct physical *physical; /* with a use for each tile; NULL: unmap */
  unsigned gpu;
  struct softgpu_target target; /* of its stream */
  struct operation *next;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct operation *first, **end = &first; /* in the order of submission */
static _Atomic unsigned waiting;

static size_t
tiles_of (const struct tile_box *box)
{
  return box->wide * box->high * box->deep;
}

/* Whether the operation's stream has reached it.  */
static bool
reached (const struct operation *operation)
{
  softgpu_lock (&driver.tie);
  bool done = softgpu_reached_now (&driver.tie, operation->gpu, operation->target);
  softgpu_unlock (&driver.tie);
  return done;
}

/* Carries out the operations that their streams have reached.  */
static void
map_arrays (void)
{
  if (!waiting)
    return;
  pthread_mutex_lock (&guard);
  for (struct operation **at = &first; *at;)
    {
      struct operation *operation = *at;
      if (!reached (operation))
        {
          at = &operation->next;
          continue;
        }
      *at = operation->next;
      waiting--;
      softgpu_set_tiles (operation->tiles, &operation->box, operation->physical);
      free (operation);
    }
  end = &first;
  while (*end)
    end = &(*end)->next;
  pthread_mutex_unlock (&guard);
}

static CUresult
find_tiles (const CUarrayMapInfo *info, struct tiles **found)
{
  if (info->resourceType == CU_RESOURCE_TYPE_ARRAY)
    {
      CUarray array = info->resource.array;
      REQUIRE (array_valid (array), CUDA_ERROR_INVALID_HANDLE);
      *found = array->of ? NULL : array->tiles;
    }
  else
    {
      CUmipmappedArray mipmap = info->resource.mipmap;
      REQUIRE (info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, CUDA_ERROR_INVALID_VALUE);
      REQUIRE (mipmap_valid (mipmap), CUDA_ERROR_INVALID_HANDLE);
      *found = mipmap->tiles;
    }
  REQUIRE (*found, CUDA_ERROR_INVALID_VALUE);
  REQUIRE ((*found)->context, CUDA_ERROR_INVALID_HANDLE);
  return CUDA_SUCCESS;
}

/* The memory that INFO maps on DEVICE, with a use for each tile of BOX.  */
static CUresult
find_memory (const CUarrayMapInfo *info, const struct tile_box *box, CUdevice device,
             struct physical **found)
{
  *found = NULL;
  if (info->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP)
    return info->memHandle.memHandle ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  REQUIRE (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP
               && info->memHandleType == CU_MEM_HANDLE_TYPE_GENERIC,
           CUDA_ERROR_INVALID_VALUE);
  struct physical *physical = softgpu_physical (info->memHandle.memHandle);
  REQUIRE (physical, CUDA_ERROR_INVALID_VALUE);
  size_t tiles = tiles_of (box);
  if (!tile_pool (physical) || physical->properties.location.id != device
      || info->offset % TILE_BYTES || info->offset > physical->bytes
      || tiles > (physical->bytes - info->offset) / TILE_BYTES)
    {
      softgpu_physical_unuse (physical, 1);
      return CUDA_ERROR_INVALID_VALUE;
    }
  softgpu_physical_use (physical, tiles - 1);
  *found = physical;
  return CUDA_SUCCESS;
}

static CUresult
read_operation (const CUarrayMapInfo *info, CUdevice device, struct operation *operation)
{
  REQUIRE (info->deviceBitMask == 1u << device && info->flags == 0 && info->reserved[0] == 0
               && info->reserved[1] == 0,
           CUDA_ERROR_INVALID_VALUE);
  operation->gpu = gpu_index (device);
  REQUIRE_SUCCESS (find_tiles (info, &operation->tiles));
  REQUIRE (operation->tiles->context->device == device, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (softgpu_find_box (info, operation->tiles, &operation->box));
  return find_memory (info, &operation->box, device, &operation->physical);
}

/* Queues LIST after what STREAM has to do.  */
static void
submit (struct operation *list, CUstream stream, CUdevice device)
{
  softgpu_side_wait (stream, device);
  softgpu_on_progress = map_arrays;
  pthread_mutex_lock (&guard);
  softgpu_lock (&driver.tie);
  struct softgpu_target target = softgpu_stream_target (stream, gpu_index (device));
  softgpu_unlock (&driver.tie);
  for (*end = list; *end; end = &(*end)->next)
    {
      (*end)->target = target;
      waiting++;
    }
  pthread_mutex_unlock (&guard);
  map_arrays ();
}

/* All operations of the list are queued, or none.  */
CUresult
cuMemMapArrayAsync (CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
  REQUIRE_ARGUMENTS (list && count);
  REQUIRE_STREAM (context, stream);
  REQUIRE_SUCCESS (softgpu_check_stream (stream));
  REQUIRE_SUCCESS (softgpu_check_implicit (stream));
  CUresult rc = CUDA_SUCCESS;
  struct operation *made = NULL, **last = &made;
  for (unsigned i = 0; i < count && rc == CUDA_SUCCESS; i++)
    {
      *last = calloc (1, sizeof **last);
      rc = *last ? read_operation (&list[i], context->device, *last) : CUDA_ERROR_OUT_OF_MEMORY;
      if (rc == CUDA_SUCCESS)
        last = &(*last)->next;
    }
  if (rc == CUDA_SUCCESS)
    submit (made, stream, context->device);
  while (rc != CUDA_SUCCESS && made)
    {
      struct operation *operation = made;
      made = operation->next;
      if (operation->physical)
        softgpu_physical_unuse (operation->physical, tiles_of (&operation->box));
      free (operation);
    }
  return rc;
}
