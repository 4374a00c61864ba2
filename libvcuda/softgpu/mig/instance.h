/* GPU instances in the state file, and the files of a driver root that stand for them.  */

#pragma once

#include "mig/geometry.h"

/* The calls need the state's lock. A part is the index of a GPU instance's entry in the state;
   SOFTGPU_MAX_ENTRIES: none. ROOT is the driver root.  */

/* Takes an entry for a GPU instance of the GPU with index PARENT, which has a place for it. Its
   id is the lowest free one of its size.  */
unsigned softgpu_take_instance (struct softgpu_state *state, const char *root, unsigned parent,
                                unsigned slices, uint64_t memory_bytes);

/* Gives the instance a compute instance of all its slices: it becomes a MIG device, with a UUID
   that there never was.  */
bool softgpu_add_compute (struct softgpu_state *state, const char *root, unsigned part);

void softgpu_remove_compute (struct softgpu_state *state, const char *root, unsigned part);
void softgpu_remove_instance (struct softgpu_state *state, const char *root, unsigned part);

/* Whether root may change the GPU's instances below ROOT.  */
bool softgpu_may_divide (const char *root, const struct softgpu_gpu *gpu);

/* Makes the folders that every GPU in MIG mode has.  */
bool softgpu_begin_dividing (const char *root, const struct softgpu_gpu *gpu);
