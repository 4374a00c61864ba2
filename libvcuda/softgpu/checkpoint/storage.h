/* Checkpoints to custom storage, and restores from it: the caller copies.  */

#pragma once

#include "checkpoint/target.h"

/* Maps all that TARGET, which the caller knows as PID, has on each GPU into the caller, and sets
   *OUT. MOVES, by each GPU's index: the index of the GPU that it is mapped on. STEP_STATE: the
   state until the operation is completed, CHECKPOINTING or RESTORING. Errors, with nothing changed:
   CUDA_ERROR_INVALID_CONTEXT where the caller has not retained the primary context of one of these
   GPUs; CUDA_ERROR_MAP_FAILED where it may not open the process's files. With the lock held.  */
CUresult softgpu_map_target (int pid, const struct target_process *target,
                             const unsigned moves[SOFTGPU_MAX_ENTRIES],
                             enum softgpu_process_state step_state,
                             CUcheckpointCustomStorageInfo **out);

/* Whether the process in SLOT copies another one's memory.  */
bool softgpu_copies_for (unsigned slot);

/* Empties the memory that INFO has mapped.  */
void softgpu_empty_target (const CUcheckpointCustomStorageInfo *info);
