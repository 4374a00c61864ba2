/* softgpu create --mig, softgpu mig: a GPU in MIG mode, and its MIG devices, each a GPU instance
   with one compute instance.  */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "create/files.h"
#include "create/request.h"
#include "mig/instance.h"

enum
{
  SLICES = 7,
};

#define HINT "give a GPU and profiles that fit into it, such as 1=1g.4gb,2g.8gb"

struct wanted
{
  unsigned slices;
  unsigned gib;
};

/* Finds the shape of this size and its highest free place, as drivers choose it; false: none.  */
static bool
place (const struct softgpu_state *state, unsigned parent, const struct wanted *wanted,
       unsigned *shape, unsigned *start)
{
  const struct softgpu_geometry *geometry = softgpu_geometry_of (&state->gpu[parent]);
  for (*shape = 0; *shape < SOFTGPU_SHAPES; ++*shape)
    if (softgpu_shapes[*shape].slices == wanted->slices && geometry->gib[*shape] == wanted->gib
        && !*softgpu_shapes[*shape].more)
      return softgpu_last_place (state, parent, *shape, start);
  return false;
}

static void
add (const char *root, struct softgpu_state *state, unsigned parent, const struct wanted *wanted)
{
  const struct softgpu_geometry *geometry = softgpu_geometry_of (&state->gpu[parent]);
  unsigned shape = 0, start = 0;
  uint64_t bytes = (uint64_t) wanted->gib << 30;
  if (geometry && !place (state, parent, wanted, &shape, &start))
    fail (2, "mig", "a profile does not fit", "give profiles of the model, such as 1g.10gb");
  if (geometry)
    bytes = (uint64_t) geometry->memory_mib[shape] << 20;
  unsigned at = softgpu_take_instance (state, root, parent, wanted->slices, bytes);
  if (at == SOFTGPU_MAX_ENTRIES)
    fail (1, root, "there is no room for so many MIG devices, or no right to make nodes",
          "create it with --mig, and fewer, as root");
  state->gpu[at].profile = shape;
  state->gpu[at].start = start;
  if (!softgpu_add_compute (state, root, at))
    fail (1, root, strerror (errno), "run it as root, with CAP_MKNOD");
}

void
divide (const char *root, struct softgpu_state *state, const char *text)
{
  unsigned parent, slices = 0, count = 0;
  uint64_t bytes = 0;
  struct wanted wanted[SOFTGPU_MIG_DEVICES];
  int length = 0;
  if (sscanf (text, "%2u=%n", &parent, &length) != 1 || !length || parent >= state->gpu_count)
    fail (2, "mig", text, HINT);
  struct softgpu_gpu *gpu = &state->gpu[parent];
  for (const char *at = text + length; *at; at += length)
    {
      struct wanted *one = &wanted[count];
      length = 0;
      if (count++ == SOFTGPU_MIG_DEVICES
          || sscanf (at, "%1ug.%5ugb%n", &one->slices, &one->gib, &length) != 2 || !length
          || !one->slices || !one->gib || (at[length] && at[length] != ','))
        fail (2, "mig", text, HINT);
      length += at[length] == ',';
      slices += one->slices;
      bytes += (uint64_t) one->gib << 30;
      if (slices > SLICES || (!softgpu_geometry_of (gpu) && bytes > gpu->memory_bytes))
        fail (2, "mig", text, HINT);
    }
  if (!softgpu_begin_dividing (root, gpu))
    fail (1, root, strerror (errno), "choose a folder that you may write to");
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    if (state->gpu[g].parent == parent + 1)
      softgpu_remove_instance (state, root, g);
  gpu->divided = 1;
  for (unsigned i = 0; i < count; i++)
    add (root, state, parent, &wanted[i]);
}
