/* The process that a checkpoint call is for, and the GPUs that a restore puts it on.  */

#pragma once

#include "driver/driver.h"
#include "engine/process_state.h"

struct target_process
{
  unsigned slot;
  uint32_t generation;
};

/* Finds the process that the caller knows as PID. Errors, which cuda.h does not tell apart:
   CUDA_ERROR_INVALID_VALUE where there is no such process, CUDA_ERROR_NOT_INITIALIZED where it has
   no CUDA.  */
CUresult softgpu_find_target (int pid, struct target_process *target);

/* The slot of TARGET; NULL: it has ended. With the lock held.  */
struct softgpu_slot *softgpu_target_slot (const struct target_process *target);

/* What a step in state FROM comes to: CUDA_ERROR_INVALID_VALUE where SLOT is NULL, for a process
   that has ended; CUDA_ERROR_ILLEGAL_STATE in another state; CUDA_ERROR_OPERATING_SYSTEM where it
   is ordered that the process is given up, which is FAILED then. With the lock held.  */
CUresult softgpu_begin_step (struct softgpu_slot *slot, enum softgpu_step step,
                             enum softgpu_process_state from);

bool softgpu_uses_gpu (const struct softgpu_slot *slot, unsigned gpu);

/* Sets MOVES, by each GPU's index: the index of the GPU that what SLOT has there is restored on.
   Errors, as far as cuda.h tells: CUDA_ERROR_INVALID_VALUE where a GPU that the process uses is in
   no pair, a GPU is in two, or a new one is not there, is a MIG device, is divided, or of another
   chip. With the lock held.  */
CUresult softgpu_read_pairs (const struct softgpu_slot *slot, const CUcheckpointRestoreArgs *args,
                             unsigned moves[SOFTGPU_MAX_ENTRIES]);

/* With the lock held.  */
void softgpu_move_process (struct softgpu_slot *slot, const unsigned moves[SOFTGPU_MAX_ENTRIES]);

/* Whether the BYTES of a reserved field are zero.  */
bool softgpu_zeroed (const void *field, size_t bytes);

/* Returns from the calling function unless PID has CUDA; names it.  */
#define REQUIRE_TARGET(name, pid)                                                                  \
  REQUIRE_DRIVER ();                                                                               \
  struct target_process name;                                                                      \
  REQUIRE_SUCCESS (softgpu_find_target (pid, &name))
