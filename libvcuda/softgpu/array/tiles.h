/* Arrays that get their memory later, in tiles: sparse ones, and those with deferred mapping.  */

#pragma once

#include "virtual/vmm.h"

#define TILE_BYTES ((size_t) 64 << 10)

struct tile_level
{
  size_t first;     /* its first tile, of those of a layer */
  size_t extent[3]; /* in elements */
  size_t count[3];  /* in tiles; those at the far edges may be partial */
};

/* The tiles of an array, layer after layer: first those of each level, then those of the mip tail,
   which all the smaller levels share.  */
struct tiles
{
  CUcontext context; /* NULL: it has ended, and the memory with it */
  bool deferred;     /* the array is mapped as a whole */
  bool layered;
  size_t tile[3]; /* in elements */
  size_t layers;
  unsigned levels; /* without those of the mip tail */
  struct tile_level level[17];
  size_t tail_first, tail_count;
  size_t of_layer, count;
  struct physical **at; /* what is mapped at each tile, or NULL */
  struct tiles *next;
};

/* A box of tiles: DEEP times HIGH rows of WIDE.  */
struct tile_box
{
  size_t first, wide, high, deep;
  size_t row, slice; /* from one to the next */
};

/* The tiles of an array with COUNT levels; NULL: no host memory.  */
struct tiles *softgpu_new_tiles (const CUarray *level, unsigned count);

/* Unmaps and frees TILES.  */
void softgpu_end_tiles (struct tiles *tiles);

/* Unmaps all tiles of CONTEXT, which ends.  */
void softgpu_end_context_tiles (CUcontext context);

/* Which of TILES INFO names.  */
CUresult softgpu_find_box (const CUarrayMapInfo *info, const struct tiles *tiles,
                           struct tile_box *box);

/* Maps PHYSICAL, which has a use for each tile, or NULL at BOX; what was there is unmapped.  */
void softgpu_set_tiles (struct tiles *tiles, const struct tile_box *box, struct physical *physical);
