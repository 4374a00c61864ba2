/* Checkpoint and restore of another process, or of this one.

   Device memory is the process's own memory here, so a checkpoint moves no bytes: it changes only
   what is counted. A checkpointed process holds no memory of any GPU, and a restore needs as much
   free memory as the process held.  */

#include <string.h>
#include <time.h>

#include "driver/driver.h"
#include "state/account.h"

static struct softgpu_slot *
slot_of (int pid)
{
  struct softgpu_state *state = driver.tie.state;
  uint64_t here = softgpu_own_slot (&driver.tie)->pid_namespace;
  for (unsigned i = 0; i < state->slots_used; i++)
    {
      struct softgpu_slot *slot = &state->slot[i];
      if (slot->kind == SOFTGPU_CUDA && slot->pid == (uint32_t) pid && slot->pid_namespace == here
          && softgpu_slot_alive (&driver.tie, i))
        return slot;
    }
  return NULL;
}

static CUresult
step (struct softgpu_slot *slot, CUprocessState from, CUprocessState to)
{
  uint32_t expected = from;
  return atomic_compare_exchange_strong (&slot->checkpoint, &expected, to)
             ? CUDA_SUCCESS
             : CUDA_ERROR_ILLEGAL_STATE;
}

#define REQUIRE_PROCESS(slot, pid)                                                                 \
  REQUIRE_DRIVER ();                                                                               \
  struct softgpu_slot *slot = slot_of (pid);                                                       \
  REQUIRE (slot, CUDA_ERROR_INVALID_VALUE)

CUresult
cuCheckpointProcessGetState (int pid, CUprocessState *state)
{
  REQUIRE_PROCESS (slot, pid);
  REQUIRE (state, CUDA_ERROR_INVALID_VALUE);
  *state = (CUprocessState) slot->checkpoint;
  return CUDA_SUCCESS;
}

CUresult
cuCheckpointProcessGetRestoreThreadId (int pid, int *tid)
{
  REQUIRE_PROCESS (slot, pid);
  REQUIRE (tid, CUDA_ERROR_INVALID_VALUE);
  *tid = (int) slot->pid; /* nothing runs in the background: any thread would do */
  return CUDA_SUCCESS;
}

static bool
idle (const struct softgpu_slot *slot)
{
  struct softgpu_state *state = driver.tie.state;
  bool done = true;
  softgpu_lock (&driver.tie);
  for (unsigned gpu = 0; gpu < state->gpu_count; gpu++)
    {
      softgpu_advance (state, gpu, softgpu_now ());
      done = done && slot->gpu[gpu].tail == slot->gpu[gpu].head;
    }
  softgpu_unlock (&driver.tie);
  return done;
}

CUresult
cuCheckpointProcessLock (int pid, CUcheckpointLockArgs *args)
{
  REQUIRE_PROCESS (slot, pid);
  CUresult rc = step (slot, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
  if (rc != CUDA_SUCCESS)
    return rc;
  slot->attention |= SOFTGPU_CHECKPOINT;
  uint64_t begin = softgpu_now (), limit = args ? args->timeoutMs * 1000000ull : 0;
  /* A call that was under way when the lock came has a moment to end.  */
  do
    nanosleep (&(struct timespec){ .tv_nsec = 1000000 }, NULL);
  while (!idle (slot) && (!limit || softgpu_now () - begin < limit));
  if (idle (slot))
    return CUDA_SUCCESS;
  slot->attention &= ~(uint32_t) SOFTGPU_CHECKPOINT;
  slot->checkpoint = CU_PROCESS_STATE_RUNNING;
  return CUDA_ERROR_NOT_READY;
}

CUresult
cuCheckpointProcessCheckpoint (int pid, CUcheckpointCheckpointArgs *args)
{
  (void) args;
  REQUIRE_PROCESS (slot, pid);
  for (unsigned gpu = 0; gpu < driver.tie.state->gpu_count; gpu++)
    REQUIRE (slot->gpu[gpu].managed_bytes == 0, CUDA_ERROR_NOT_SUPPORTED);
  CUresult rc = step (slot, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
  if (rc != CUDA_SUCCESS)
    return rc;
  softgpu_lock (&driver.tie);
  for (unsigned gpu = 0; gpu < driver.tie.state->gpu_count; gpu++)
    {
      struct softgpu_slot_gpu *part = &slot->gpu[gpu];
      part->parked_bytes = atomic_exchange (&part->held_bytes, 0);
      part->parked_contexts = part->contexts;
      part->contexts = 0;
    }
  softgpu_unlock (&driver.tie);
  return CUDA_SUCCESS;
}

static bool
fits (const struct softgpu_slot *slot, unsigned gpu)
{
  struct softgpu_state *state = driver.tie.state;
  uint64_t held = slot->gpu[gpu].parked_bytes + softgpu_account (state, gpu).physical;
  return held <= state->gpu[gpu].memory_bytes;
}

CUresult
cuCheckpointProcessRestore (int pid, CUcheckpointRestoreArgs *args)
{
  REQUIRE_PROCESS (slot, pid);
  REQUIRE (!args || args->gpuPairsCount == 0, CUDA_ERROR_NOT_SUPPORTED);
  REQUIRE (slot->checkpoint == CU_PROCESS_STATE_CHECKPOINTED, CUDA_ERROR_ILLEGAL_STATE);
  softgpu_lock (&driver.tie);
  softgpu_reap (&driver.tie);
  bool room = true;
  for (unsigned gpu = 0; gpu < driver.tie.state->gpu_count; gpu++)
    room = room && fits (slot, gpu);
  for (unsigned gpu = 0; room && gpu < driver.tie.state->gpu_count; gpu++)
    {
      struct softgpu_slot_gpu *part = &slot->gpu[gpu];
      part->held_bytes += part->parked_bytes;
      part->contexts = part->parked_contexts;
      part->parked_bytes = 0;
      part->parked_contexts = 0;
    }
  softgpu_unlock (&driver.tie);
  REQUIRE (room, CUDA_ERROR_OUT_OF_MEMORY);
  return step (slot, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
}

CUresult
cuCheckpointProcessUnlock (int pid, CUcheckpointUnlockArgs *args)
{
  (void) args;
  REQUIRE_PROCESS (slot, pid);
  CUresult rc = step (slot, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
  if (rc == CUDA_SUCCESS)
    slot->attention &= ~(uint32_t) SOFTGPU_CHECKPOINT;
  return rc;
}
