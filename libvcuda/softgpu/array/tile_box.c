/* Which tiles an operation of cuMemMapArrayAsync names.  */

#include "array/tiles.h"

static CUresult
box_of_level (const CUarrayMapInfo *info, const struct tiles *tiles, struct tile_box *box)
{
  unsigned number = info->subresource.sparseLevel.level;
  unsigned layer = info->subresource.sparseLevel.layer;
  const size_t offset[3]
      = { info->subresource.sparseLevel.offsetX, info->subresource.sparseLevel.offsetY,
          info->subresource.sparseLevel.offsetZ };
  const size_t extent[3]
      = { info->subresource.sparseLevel.extentWidth, info->subresource.sparseLevel.extentHeight,
          info->subresource.sparseLevel.extentDepth };
  REQUIRE (number < tiles->levels && layer < tiles->layers, CUDA_ERROR_INVALID_VALUE);
  const struct tile_level *level = &tiles->level[number];
  size_t begin[3], count[3];
  for (int i = 0; i < 3; i++)
    {
      size_t stop = offset[i] + extent[i];
      /* Only the far edge of a level may lie within a tile.  */
      REQUIRE (extent[i] && stop <= level->extent[i] && offset[i] % tiles->tile[i] == 0
                   && (stop % tiles->tile[i] == 0 || stop == level->extent[i]),
               CUDA_ERROR_INVALID_VALUE);
      begin[i] = offset[i] / tiles->tile[i];
      count[i] = (stop + tiles->tile[i] - 1) / tiles->tile[i] - begin[i];
    }
  *box = (struct tile_box){ .wide = count[0], .high = count[1], .deep = count[2] };
  box->row = level->count[0];
  box->slice = level->count[0] * level->count[1];
  box->first = layer * tiles->of_layer + level->first + begin[2] * box->slice + begin[1] * box->row
               + begin[0];
  return CUDA_SUCCESS;
}

static CUresult
box_of_tail (const CUarrayMapInfo *info, const struct tiles *tiles, struct tile_box *box)
{
  unsigned layer = info->subresource.miptail.layer;
  uint64_t offset = info->subresource.miptail.offset, size = info->subresource.miptail.size;
  uint64_t tail = tiles->tail_count * TILE_BYTES;
  REQUIRE (layer < tiles->layers && size && offset <= tail && size <= tail - offset
               && offset % TILE_BYTES == 0 && size % TILE_BYTES == 0,
           CUDA_ERROR_INVALID_VALUE);
  *box = (struct tile_box){ .wide = size / TILE_BYTES, .high = 1, .deep = 1 };
  box->first = layer * tiles->of_layer + tiles->tail_first + offset / TILE_BYTES;
  return CUDA_SUCCESS;
}

CUresult
softgpu_find_box (const CUarrayMapInfo *info, const struct tiles *tiles, struct tile_box *box)
{
  *box = (struct tile_box){ .wide = tiles->count, .high = 1, .deep = 1 };
  if (tiles->deferred)
    return CUDA_SUCCESS;
  if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL)
    return box_of_level (info, tiles, box);
  REQUIRE (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL,
           CUDA_ERROR_INVALID_VALUE);
  return box_of_tail (info, tiles, box);
}
