/* Checkpoints to custom storage, and restores from it: the caller copies.  */

#ifndef SOFTGPU_STORAGE_H
#define SOFTGPU_STORAGE_H

#include "checkpoint/target.h"

/* Maps all that TARGET, which the caller knows as PID, has on each GPU into the caller, and sets
   *OUT. MOVES, by each GPU's index: the index of the GPU that it is mapped on. What the caller
   copies ends STEP_STATE, CHECKPOINTING or RESTORING. Errors: CUDA_ERROR_INVALID_CONTEXT where the
   caller has not retained the primary context of one of these GPUs; CUDA_ERROR_MAP_FAILED where it
   may not look into the process. Nothing is changed then. With the lock held.  */
CUresult softgpu_map_target (int pid, const struct target_process *target,
                             const unsigned moves[SOFTGPU_MAX_ENTRIES],
                             enum softgpu_process_state step_state,
                             CUcheckpointCustomStorageInfo **out);

/* Whether this process copies another's memory.  */
bool softgpu_copies_for (unsigned slot);

/* Empties what INFO shows.  */
void softgpu_empty_target (const CUcheckpointCustomStorageInfo *info);

#endif
