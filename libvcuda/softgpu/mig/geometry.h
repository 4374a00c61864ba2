/* Which GPU instances a GPU can have: profiles, and their places among its memory slices.  */

#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "state/state.h"

#define SOFTGPU_MEMORY_SLICES 8
#define SOFTGPU_SHAPES 7

/* A profile without its memory. The numbers are the same for all GPUs of this table.  */
struct softgpu_shape
{
  unsigned name; /* NVML_GPU_INSTANCE_PROFILE_... */
  unsigned id;   /* the driver's */
  unsigned slices;
  unsigned memory_slices;
  unsigned most;                         /* instances of it at a time */
  unsigned starts;                       /* entries of start[] */
  unsigned start[SOFTGPU_MEMORY_SLICES]; /* the first memory slice of each place */
  const char *more;                      /* of its name: "+me" has the media engines */
};

/* What a model gives to each shape, in their order.  */
struct softgpu_geometry
{
  const char *model; /* a part of the GPU's name */
  unsigned gib[SOFTGPU_SHAPES];
  unsigned memory_mib[SOFTGPU_SHAPES];
  unsigned multiprocessors[SOFTGPU_SHAPES];
};

extern const struct softgpu_shape softgpu_shapes[SOFTGPU_SHAPES];

/* The geometry of GPU's model; NULL: this software GPU does not know it.  */
const struct softgpu_geometry *softgpu_geometry_of (const struct softgpu_gpu *gpu);

/* The index of the shape by its driver's id; SOFTGPU_SHAPES: there is none.  */
unsigned softgpu_shape_by_id (unsigned id);

/* "3g.40gb" into TEXT.  */
void softgpu_name_profile (const struct softgpu_geometry *geometry, unsigned shape, char *text,
                           size_t size);

/* Whether an instance of SHAPE fits at START of the GPU with index PARENT.  */
bool softgpu_place_is_free (const struct softgpu_state *state, unsigned parent, unsigned shape,
                            unsigned start);

/* Puts the highest free place of SHAPE into START; false: there is none.  */
bool softgpu_last_place (const struct softgpu_state *state, unsigned parent, unsigned shape,
                         unsigned *start);

/* How many instances of SHAPE the GPU has room for.  */
unsigned softgpu_places_left (const struct softgpu_state *state, unsigned parent, unsigned shape);
