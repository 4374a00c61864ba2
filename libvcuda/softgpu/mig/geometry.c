/* Which GPU instances a GPU can have.

   Source: NVIDIA's MIG user guide, "Supported MIG profiles", and what nvidia-smi mig -lgip and
   -lgipp print; memory of the H200 as its users report it.  */

#include "mig/geometry.h"

#include <stdio.h>
#include <string.h>

const struct softgpu_shape softgpu_shapes[SOFTGPU_SHAPES] = {
  { 0x0, 19, 1, 1, 7, 7, { 0, 1, 2, 3, 4, 5, 6 }, "" },
  { 0x7, 20, 1, 1, 1, 7, { 0, 1, 2, 3, 4, 5, 6 }, "+me" },
  { 0x9, 15, 1, 2, 4, 4, { 0, 2, 4, 6 }, "" },
  { 0x1, 14, 2, 2, 3, 3, { 0, 2, 4 }, "" },
  { 0x2, 9, 3, 4, 2, 2, { 0, 4 }, "" },
  { 0x3, 5, 4, 4, 1, 1, { 0 }, "" },
  { 0x4, 0, 7, 8, 1, 1, { 0 }, "" },
};

static const struct softgpu_geometry geometries[] = {
  { "A100",
    { 10, 10, 20, 20, 40, 40, 80 },
    { 9856, 9856, 19968, 19968, 40192, 40192, 80384 },
    { 14, 14, 14, 28, 42, 56, 98 } },
  { "H100",
    { 10, 10, 20, 20, 40, 40, 80 },
    { 9984, 9984, 20096, 20096, 40448, 40448, 81152 },
    { 16, 16, 26, 32, 60, 64, 132 } },
  { "H200",
    { 18, 18, 35, 35, 71, 71, 141 },
    { 16384, 16384, 33280, 33280, 71424, 71424, 143360 },
    { 16, 16, 26, 32, 60, 64, 132 } },
};

const struct softgpu_geometry *
softgpu_geometry_of (const struct softgpu_gpu *gpu)
{
  for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
    if (strstr (gpu->name, geometries[i].model))
      return &geometries[i];
  return NULL;
}

unsigned
softgpu_shape_by_id (unsigned id)
{
  unsigned shape = 0;
  while (shape < SOFTGPU_SHAPES && softgpu_shapes[shape].id != id)
    shape++;
  return shape;
}

void
softgpu_name_profile (const struct softgpu_geometry *geometry, unsigned shape, char *text,
                      size_t size)
{
  snprintf (text, size, "%ug.%ugb%s", softgpu_shapes[shape].slices, geometry->gib[shape],
            softgpu_shapes[shape].more);
}

/* One bit for each memory slice that is taken.  */
static unsigned
taken (const struct softgpu_state *state, unsigned parent)
{
  unsigned bits = 0;
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    if (state->gpu[g].parent == parent + 1)
      bits |= ((1u << softgpu_shapes[state->gpu[g].profile].memory_slices) - 1)
              << state->gpu[g].start;
  return bits;
}

static unsigned
count_of (const struct softgpu_state *state, unsigned parent, unsigned shape)
{
  unsigned count = 0;
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    count += state->gpu[g].parent == parent + 1 && state->gpu[g].profile == shape;
  return count;
}

bool
softgpu_place_is_free (const struct softgpu_state *state, unsigned parent, unsigned shape,
                       unsigned start)
{
  const struct softgpu_shape *wanted = &softgpu_shapes[shape];
  unsigned own = ((1u << wanted->memory_slices) - 1) << start;
  return !(taken (state, parent) & own) && count_of (state, parent, shape) < wanted->most;
}

bool
softgpu_last_place (const struct softgpu_state *state, unsigned parent, unsigned shape,
                    unsigned *start)
{
  for (unsigned i = softgpu_shapes[shape].starts; i-- > 0;)
    if (softgpu_place_is_free (state, parent, shape, softgpu_shapes[shape].start[i]))
      {
        *start = softgpu_shapes[shape].start[i];
        return true;
      }
  return false;
}

unsigned
softgpu_places_left (const struct softgpu_state *state, unsigned parent, unsigned shape)
{
  const struct softgpu_shape *wanted = &softgpu_shapes[shape];
  unsigned left = 0, most = wanted->most - count_of (state, parent, shape);
  for (unsigned i = 0; i < wanted->starts; i++)
    left += softgpu_place_is_free (state, parent, shape, wanted->start[i]);
  return left < most ? left : most;
}
