/* The process that a checkpoint call is for.  */

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

/* What a step in state FROM comes to: CUDA_ERROR_ILLEGAL_STATE in another one;
   CUDA_ERROR_OPERATING_SYSTEM where it is ordered that the process is given up, which is FAILED
   then. With the lock held.  */
CUresult softgpu_begin_step (struct softgpu_slot *slot, enum softgpu_step step,
                             enum softgpu_process_state from);

/* Whether the BYTES of a reserved field are zero.  */
bool softgpu_zeroed (const void *field, size_t bytes);

/* Returns from the calling function unless PID has CUDA; names it.  */
#define REQUIRE_TARGET(name, pid)                                                                  \
  REQUIRE_DRIVER ();                                                                               \
  struct target_process name;                                                                      \
  REQUIRE_SUCCESS (softgpu_find_target (pid, &name))
