/* The tiles of arrays that get their memory later, and what is mapped at each.

   The extents of a tile are those of the standard block shapes that graphics APIs share.  */

#include <stdlib.h>

#include "array/shape.h"
#include "array/tiles.h"

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct tiles *known;

/* Extents of 64 KiB in elements of 1, 2, 4, 8 and 16 bytes.  */
static const size_t flat_tile[5][3]
    = { { 256, 256, 1 }, { 256, 128, 1 }, { 128, 128, 1 }, { 128, 64, 1 }, { 64, 64, 1 } };
static const size_t deep_tile[5][3]
    = { { 64, 32, 32 }, { 32, 32, 32 }, { 32, 32, 16 }, { 32, 16, 16 }, { 16, 16, 16 } };

static size_t
tiles_in (size_t bytes)
{
  return (bytes + TILE_BYTES - 1) / TILE_BYTES;
}

/* Whether the array spans at least one tile in every dimension.  */
static bool
spans_a_tile (const struct tiles *tiles, const size_t extent[3])
{
  return extent[0] >= tiles->tile[0] && extent[1] >= tiles->tile[1] && extent[2] >= tiles->tile[2];
}

static void
add_level (struct tiles *tiles, const size_t extent[3])
{
  struct tile_level *level = &tiles->level[tiles->levels++];
  size_t all = 1;
  level->first = tiles->of_layer;
  for (int i = 0; i < 3; i++)
    {
      level->extent[i] = extent[i];
      level->count[i] = (extent[i] + tiles->tile[i] - 1) / tiles->tile[i];
      all *= level->count[i];
    }
  tiles->of_layer += all;
}

/* Lays out the levels; those from the first that spans no tile on are the mip tail.  */
static void
lay_out (struct tiles *tiles, const CUarray *level, unsigned count)
{
  const struct CUarray_st *largest = level[0];
  size_t element = largest->row_bytes / largest->shape.Width, tail_bytes = 0;
  bool deep = largest->shape.Depth && !tiles->layered;
  const size_t *tile = (deep ? deep_tile : flat_tile)[__builtin_ctzll (element)];
  for (int i = 0; i < 3; i++)
    tiles->tile[i] = tile[i];
  for (unsigned i = 0; i < count; i++)
    {
      const struct CUarray_st *array = level[i];
      size_t depth = deep ? array->layers : 1;
      size_t extent[3] = { array->shape.Width, array->rows, depth };
      if (!tail_bytes && (count == 1 || spans_a_tile (tiles, extent)))
        add_level (tiles, extent);
      else
        tail_bytes += array->row_bytes * array->rows * depth;
    }
  tiles->tail_first = tiles->of_layer;
  tiles->tail_count = tiles_in (tail_bytes);
  tiles->of_layer += tiles->tail_count;
}

struct tiles *
softgpu_new_tiles (const CUarray *level, unsigned count)
{
  const CUDA_ARRAY3D_DESCRIPTOR *shape = &level[0]->shape;
  struct tiles *tiles = calloc (1, sizeof *tiles);
  if (!tiles)
    return NULL;
  tiles->context = level[0]->context;
  tiles->deferred = shape->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING;
  tiles->layered = shape->Flags & CUDA_ARRAY3D_LAYERED;
  tiles->layers = tiles->layered ? level[0]->layers : 1;
  if (tiles->deferred)
    {
      size_t bytes = 0;
      for (unsigned i = 0; i < count; i++)
        bytes += level[i]->bytes;
      tiles->of_layer = tiles->count = tiles_in (bytes);
    }
  else
    {
      lay_out (tiles, level, count);
      tiles->count = tiles->of_layer * tiles->layers;
    }
  tiles->at = calloc (tiles->count, sizeof *tiles->at);
  if (!tiles->at)
    {
      free (tiles);
      return NULL;
    }
  pthread_mutex_lock (&guard);
  tiles->next = known;
  known = tiles;
  pthread_mutex_unlock (&guard);
  return tiles;
}

void
softgpu_set_tiles (struct tiles *tiles, const struct tile_box *box, struct physical *physical)
{
  for (size_t z = 0; z < box->deep; z++)
    for (size_t y = 0; y < box->high; y++)
      for (size_t x = 0; x < box->wide; x++)
        {
          struct physical **at = &tiles->at[box->first + z * box->slice + y * box->row + x];
          struct physical *before = *at;
          *at = physical;
          if (before)
            softgpu_physical_unuse (before, 1);
        }
}

static void
unmap_all (struct tiles *tiles)
{
  softgpu_set_tiles (tiles, &(struct tile_box){ .wide = tiles->count, .high = 1, .deep = 1 }, NULL);
}

void
softgpu_end_tiles (struct tiles *tiles)
{
  pthread_mutex_lock (&guard);
  UNLINK (known, tiles, next)
  pthread_mutex_unlock (&guard);
  unmap_all (tiles);
  free (tiles->at);
  free (tiles);
}

void
softgpu_end_context_tiles (CUcontext context)
{
  pthread_mutex_lock (&guard);
  for (struct tiles *tiles = known; tiles; tiles = tiles->next)
    if (tiles->context == context)
      {
        unmap_all (tiles);
        tiles->context = NULL;
      }
  pthread_mutex_unlock (&guard);
}

static CUresult
describe (CUDA_ARRAY_SPARSE_PROPERTIES *properties, const struct tiles *tiles)
{
  REQUIRE (tiles && !tiles->deferred, CUDA_ERROR_INVALID_VALUE);
  *properties = (CUDA_ARRAY_SPARSE_PROPERTIES){ .miptailSize = tiles->tail_count * TILE_BYTES };
  if (tiles->tail_count)
    properties->miptailFirstLevel = tiles->levels;
  properties->tileExtent.width = (unsigned) tiles->tile[0];
  properties->tileExtent.height = (unsigned) tiles->tile[1];
  properties->tileExtent.depth = (unsigned) tiles->tile[2];
  return CUDA_SUCCESS;
}

CUresult
cuArrayGetSparseProperties (CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray array)
{
  REQUIRE_ARGUMENTS (properties && array_valid (array) && !array->of);
  return describe (properties, array->tiles);
}

CUresult
cuMipmappedArrayGetSparseProperties (CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                     CUmipmappedArray mipmap)
{
  REQUIRE_ARGUMENTS (properties && mipmap_valid (mipmap));
  return describe (properties, mipmap->tiles);
}
