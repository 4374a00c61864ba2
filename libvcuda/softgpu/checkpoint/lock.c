/* Locks and unlocks another process, or this one, and reports its state.  */

#include "checkpoint/target.h"

#include <time.h>

_Static_assert ((int) SOFTGPU_PROCESS_FAILED == (int) CU_PROCESS_STATE_FAILED
                    && (int) SOFTGPU_PROCESS_RESTORING == (int) CU_PROCESS_STATE_RESTORING,
                "the states are cuda.h's");

CUresult
cuCheckpointProcessGetState (int pid, CUprocessState *state)
{
  REQUIRE_DRIVER ();
  REQUIRE (state, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_TARGET (target, pid);
  softgpu_lock (&driver.tie);
  const struct softgpu_slot *slot = softgpu_target_slot (&target);
  while (slot && softgpu_copies (slot)) /* as seen of driver 580 on an H200 */
    {
      uint64_t end = slot->copied_ns;
      softgpu_unlock (&driver.tie);
      softgpu_sleep_until (end);
      softgpu_lock (&driver.tie);
      slot = softgpu_target_slot (&target);
    }
  if (slot)
    *state = (CUprocessState) softgpu_process_state (slot);
  softgpu_unlock (&driver.tie);
  return slot ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult
cuCheckpointProcessGetRestoreThreadId (int pid, int *tid)
{
  REQUIRE_DRIVER ();
  REQUIRE (tid, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_TARGET (target, pid);
  (void) target;
  *tid = pid; /* nothing runs in the background: any thread would do */
  return CUDA_SUCCESS;
}

static CUresult
take_step (const struct target_process *target, enum softgpu_step step,
           enum softgpu_process_state from, enum softgpu_process_state to)
{
  softgpu_lock (&driver.tie);
  struct softgpu_slot *slot = softgpu_target_slot (target);
  CUresult rc = softgpu_begin_step (slot, step, from);
  if (rc == CUDA_SUCCESS)
    softgpu_set_process_state (slot, to);
  softgpu_unlock (&driver.tie);
  return rc;
}

/* CUDA_ERROR_NOT_READY while the process has work.  */
static CUresult
idle (const struct target_process *target)
{
  struct softgpu_state *state = driver.tie.state;
  softgpu_lock (&driver.tie);
  const struct softgpu_slot *slot = softgpu_target_slot (target);
  bool busy = slot && slot->calls;
  for (unsigned gpu = 0; slot && gpu < state->entries; gpu++)
    {
      if (*state->gpu[gpu].uuid)
        softgpu_advance (state, gpu, softgpu_now ());
      busy = busy || slot->gpu[gpu].tail != slot->gpu[gpu].head;
    }
  softgpu_unlock (&driver.tie);
  REQUIRE (slot, CUDA_ERROR_INVALID_VALUE);
  return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult
cuCheckpointProcessLock (int pid, CUcheckpointLockArgs *args)
{
  REQUIRE_TARGET (target, pid);
  REQUIRE (!args || (!args->reserved0 && softgpu_zeroed (args->reserved1, sizeof args->reserved1)),
           CUDA_ERROR_INVALID_VALUE);
  REQUIRE_SUCCESS (
      take_step (&target, SOFTGPU_LOCK, SOFTGPU_PROCESS_RUNNING, SOFTGPU_PROCESS_LOCKED));
  CUresult rc;
  uint64_t begin = softgpu_now (), limit = args ? args->timeoutMs * 1000000ull : 0;
  /* A call that was under way when the lock came has a moment to end.  */
  do
    {
      nanosleep (&(struct timespec){ .tv_nsec = 1000000 }, NULL);
      rc = idle (&target);
    }
  while (rc == CUDA_ERROR_NOT_READY && (!limit || softgpu_now () - begin < limit));
  if (rc == CUDA_ERROR_NOT_READY)
    take_step (&target, SOFTGPU_UNLOCK, SOFTGPU_PROCESS_LOCKED, SOFTGPU_PROCESS_RUNNING);
  return rc;
}

CUresult
cuCheckpointProcessUnlock (int pid, CUcheckpointUnlockArgs *args)
{
  REQUIRE_TARGET (target, pid);
  REQUIRE (!args || softgpu_zeroed (args, sizeof *args), CUDA_ERROR_INVALID_VALUE);
  return take_step (&target, SOFTGPU_UNLOCK, SOFTGPU_PROCESS_LOCKED, SOFTGPU_PROCESS_RUNNING);
}
