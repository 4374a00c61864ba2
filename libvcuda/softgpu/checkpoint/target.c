/* Finds the process that a checkpoint call names.  */

#include "checkpoint/target.h"
#include "state/pid.h"

CUresult
softgpu_find_target (int pid, struct target_process *target)
{
  struct softgpu_state *state = driver.tie.state;
  struct softgpu_process process;
  REQUIRE (softgpu_process_of (pid, &process), CUDA_ERROR_INVALID_VALUE);
  CUresult rc = CUDA_ERROR_NOT_INITIALIZED;
  softgpu_lock (&driver.tie);
  for (unsigned i = 0; i < state->slots_used && rc != CUDA_SUCCESS; i++)
    {
      const struct softgpu_slot *slot = &state->slot[i];
      if (slot->kind != SOFTGPU_CUDA || slot->pid != process.pid
          || slot->pid_namespace != process.pid_namespace || !softgpu_slot_alive (&driver.tie, i))
        continue;
      *target = (struct target_process){ i, slot->generation };
      rc = CUDA_SUCCESS;
      if (slot->copier && !softgpu_slot_alive (&driver.tie, slot->copier - 1))
        softgpu_reap (&driver.tie);
    }
  softgpu_unlock (&driver.tie);
  return rc;
}

struct softgpu_slot *
softgpu_target_slot (const struct target_process *target)
{
  struct softgpu_slot *slot = &driver.tie.state->slot[target->slot];
  bool same = slot->kind == SOFTGPU_CUDA && slot->generation == target->generation
              && softgpu_slot_alive (&driver.tie, target->slot);
  return same ? slot : NULL;
}

CUresult
softgpu_begin_step (struct softgpu_slot *slot, enum softgpu_step step,
                    enum softgpu_process_state from)
{
  REQUIRE (slot, CUDA_ERROR_INVALID_VALUE);
  REQUIRE (softgpu_process_state (slot) == from, CUDA_ERROR_ILLEGAL_STATE);
  if (driver.tie.state->given_up != step + 1u)
    return CUDA_SUCCESS;
  driver.tie.state->given_up = 0;
  softgpu_set_process_state (slot, SOFTGPU_PROCESS_FAILED);
  return CUDA_ERROR_OPERATING_SYSTEM;
}

bool
softgpu_zeroed (const void *field, size_t bytes)
{
  const unsigned char *byte = field;
  for (size_t i = 0; i < bytes; i++)
    if (byte[i])
      return false;
  return true;
}
