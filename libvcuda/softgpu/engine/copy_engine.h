/* The copy engines: one for each direction of the bus, beside kernels and independent of turns.  */

#pragma once

#include "state/queue.h"

static inline bool
softgpu_over_bus (const struct softgpu_command *command)
{
  return command->kind == SOFTGPU_TO_GPU || command->kind == SOFTGPU_FROM_GPU;
}

/* Gives each engine that is free the copy that has waited longest; false: nothing changed.  */
bool softgpu_start_copies (struct softgpu_state *state, unsigned gpu);
