/* The GPUs that a restore puts a process on.  */

#pragma once

#include "driver/driver.h"

bool softgpu_uses_gpu (const struct softgpu_slot *slot, unsigned gpu);

/* Sets MOVES, by each GPU's index: the index of the GPU that what SLOT has there is restored on.
   Errors, as far as cuda.h tells: CUDA_ERROR_INVALID_VALUE where a GPU that the process uses is in
   no pair, a GPU is in two, or a new one is not there, is a MIG device, is divided, or of another
   chip. With the lock held.  */
CUresult softgpu_read_pairs (const struct softgpu_slot *slot, const CUcheckpointRestoreArgs *args,
                             unsigned moves[SOFTGPU_MAX_ENTRIES]);

/* With the lock held.  */
void softgpu_move_process (struct softgpu_slot *slot, const unsigned moves[SOFTGPU_MAX_ENTRIES]);
