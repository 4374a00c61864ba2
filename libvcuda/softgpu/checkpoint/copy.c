/* Moves a locked process's memory to the host, and back.

   Device memory is the process's own memory here, so the driver's own copy moves no byte: it takes
   time, and changes what the GPU counts. For custom storage the caller copies: see storage.c.  */

#include <stdlib.h>

#include "checkpoint/storage.h"
#include "checkpoint/target.h"
#include "engine/account.h"
#include "memory/parts.h"

static uint64_t
held_bytes (const struct softgpu_slot *slot)
{
  uint64_t bytes = 0;
  for (unsigned gpu = 0; gpu < driver.tie.state->entries; gpu++)
    bytes += slot->gpu[gpu].held_bytes;
  return bytes;
}

/* Memory between processes can be checkpointed from this driver on.  */
#define IPC_MAJOR 610

/* Whether the driver can checkpoint the process: not with managed memory, MIG, MPS or shared
   memory, and not while it copies another process's memory for a checkpoint.  */
static bool
supported (const struct softgpu_slot *slot)
{
  const struct softgpu_state *state = driver.tie.state;
  if (softgpu_copies_for ((unsigned) (slot - state->slot)) || state->clock == SOFTGPU_MPS
      || slot->mps_server || (slot->shares_memory && atoi (state->driver_version) < IPC_MAJOR))
    return false;
  for (unsigned gpu = 0; gpu < state->entries; gpu++)
    {
      const struct softgpu_slot_gpu *part = &slot->gpu[gpu];
      if (part->managed_bytes || (state->gpu[gpu].parent && (part->contexts || part->held_bytes)))
        return false;
    }
  return true;
}

/* MOVES: where what lies on each GPU shall be restored.  */
static bool
has_room (const struct softgpu_slot *slot, const unsigned moves[])
{
  struct softgpu_state *state = driver.tie.state;
  for (unsigned gpu = 0; gpu < state->entries; gpu++)
    if (!softgpu_has_room (state, moves[gpu], slot->pid_namespace, slot->gpu[gpu].held_bytes))
      return false;
  return true;
}

/* The copy goes on without the caller: see process_state.h.  */
static CUresult
wait_until (const struct target_process *target, uint64_t end)
{
  softgpu_sleep_until (end);
  softgpu_lock (&driver.tie);
  bool lives = softgpu_target_slot (target);
  softgpu_unlock (&driver.tie);
  return lives ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The first drivers of CUDA 13.0, which adds pairs to the struct of a restore, and of 13.4, which
   adds custom storage to both structs. What is new was reserved before. Source: cuda.h of 12.9,
   13.0 and 13.5.  */
#define PAIRS_MAJOR 580

/* *STORAGE: where the caller wants to copy itself, else NULL.  */
static CUresult
read_checkpoint_args (const CUcheckpointCheckpointArgs *args,
                      CUcheckpointCustomStorageInfo ***storage)
{
  *storage = args ? args->customStorageInfo_out : NULL;
  if (!args)
    return CUDA_SUCCESS;
  REQUIRE (softgpu_zeroed (args->reserved, sizeof args->reserved), CUDA_ERROR_INVALID_VALUE);
  REQUIRE (!*storage || softgpu_lists_parts (), CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

static CUresult
read_restore_args (const CUcheckpointRestoreArgs *args, CUcheckpointCustomStorageInfo ***storage)
{
  *storage = NULL;
  if (!args)
    return CUDA_SUCCESS;
  int major = atoi (driver.tie.state->driver_version);
  const char *end = (const char *) (args + 1), *reserved = args->reserved;
  if (major < PAIRS_MAJOR)
    reserved = (const char *) args;
  else if (major < CUSTOM_STORAGE_MAJOR)
    reserved = (const char *) &args->padding0;
  REQUIRE (softgpu_zeroed (reserved, (size_t) (end - reserved)), CUDA_ERROR_INVALID_VALUE);
  *storage = args->customStorageInfo_out;
  return CUDA_SUCCESS;
}

CUresult
cuCheckpointProcessCheckpoint (int pid, CUcheckpointCheckpointArgs *args)
{
  REQUIRE_TARGET (target, pid);
  CUcheckpointCustomStorageInfo **storage;
  REQUIRE_SUCCESS (read_checkpoint_args (args, &storage));
  REQUIRE (!storage || target.slot != driver.tie.slot, CUDA_ERROR_NOT_SUPPORTED);
  uint64_t end = 0;
  softgpu_lock (&driver.tie);
  struct softgpu_slot *slot = softgpu_target_slot (&target);
  CUresult rc = softgpu_begin_step (slot, SOFTGPU_CHECKPOINT_STEP, SOFTGPU_PROCESS_LOCKED);
  if (rc == CUDA_SUCCESS && !supported (slot))
    rc = CUDA_ERROR_NOT_SUPPORTED;
  unsigned stays[SOFTGPU_MAX_ENTRIES];
  if (rc == CUDA_SUCCESS && storage)
    rc = softgpu_read_pairs (slot, NULL, stays);
  if (rc == CUDA_SUCCESS && storage)
    rc = softgpu_map_target (pid, &target, stays, SOFTGPU_PROCESS_CHECKPOINTING, storage);
  if (rc == CUDA_SUCCESS)
    slot->in_custom_storage = storage != NULL;
  if (rc == CUDA_SUCCESS && storage)
    softgpu_begin_custom_copy (slot, SOFTGPU_PROCESS_CHECKPOINTING, driver.tie.slot);
  else if (rc == CUDA_SUCCESS)
    end = softgpu_begin_copy (slot, SOFTGPU_PROCESS_CHECKPOINTING, held_bytes (slot),
                              driver.tie.state->checkpoint_rate);
  softgpu_unlock (&driver.tie);
  return rc == CUDA_SUCCESS && !storage ? wait_until (&target, end) : rc;
}

/* A restore from the other storage than the checkpoint's loses the process. Assumed: see
   docs/softgpu.md.  */
CUresult
cuCheckpointProcessRestore (int pid, CUcheckpointRestoreArgs *args)
{
  REQUIRE_TARGET (target, pid);
  CUcheckpointCustomStorageInfo **storage;
  REQUIRE_SUCCESS (read_restore_args (args, &storage));
  REQUIRE (!storage || target.slot != driver.tie.slot, CUDA_ERROR_NOT_SUPPORTED);
  uint64_t end = 0;
  unsigned moves[SOFTGPU_MAX_ENTRIES];
  softgpu_lock (&driver.tie);
  softgpu_reap (&driver.tie);
  struct softgpu_slot *slot = softgpu_target_slot (&target);
  CUresult rc = softgpu_begin_step (slot, SOFTGPU_RESTORE, SOFTGPU_PROCESS_CHECKPOINTED);
  if (rc == CUDA_SUCCESS && slot->unrestorable)
    rc = CUDA_ERROR_OPERATING_SYSTEM;
  if (rc == CUDA_SUCCESS)
    rc = softgpu_read_pairs (slot, args, moves);
  if (rc == CUDA_SUCCESS && slot->in_custom_storage != (storage != NULL))
    {
      rc = CUDA_ERROR_OPERATING_SYSTEM;
      softgpu_set_process_state (slot, SOFTGPU_PROCESS_FAILED);
    }
  if (rc == CUDA_SUCCESS && !has_room (slot, moves))
    {
      rc = CUDA_ERROR_OUT_OF_MEMORY;
      slot->unrestorable = 1; /* as seen of driver 580 on an H200 */
    }
  if (rc == CUDA_SUCCESS && storage)
    rc = softgpu_map_target (pid, &target, moves, SOFTGPU_PROCESS_RESTORING, storage);
  if (rc == CUDA_SUCCESS)
    {
      softgpu_begin_change (driver.tie.state, slot);
      softgpu_move_process (slot, moves);
      if (storage)
        softgpu_begin_custom_copy (slot, SOFTGPU_PROCESS_RESTORING, driver.tie.slot);
      else
        end = softgpu_begin_copy (slot, SOFTGPU_PROCESS_RESTORING, held_bytes (slot),
                                  driver.tie.state->restore_rate);
      softgpu_end_change (driver.tie.state);
    }
  softgpu_unlock (&driver.tie);
  if (rc == CUDA_SUCCESS && storage)
    softgpu_empty_target (*storage);
  return rc == CUDA_SUCCESS && !storage ? wait_until (&target, end) : rc;
}
