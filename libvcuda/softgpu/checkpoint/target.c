/* Finds the process that a checkpoint call names, and reads the pairs of GPUs of a restore: an old
   one, and the one that takes its place.  */

#include "checkpoint/target.h"

#include <string.h>

#include "driver/device.h"
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

static int
index_of (const CUuuid *uuid)
{
  const struct softgpu_state *state = driver.tie.state;
  for (unsigned gpu = 0; gpu < state->entries; gpu++)
    {
      CUuuid there;
      if (*state->gpu[gpu].uuid && softgpu_read_uuid (&there, state->gpu[gpu].uuid) == CUDA_SUCCESS
          && memcmp (&there, uuid, sizeof there) == 0)
        return (int) gpu;
    }
  return -1;
}

/* A process that a checkpoint has put aside has nothing of MIG devices.  */
static bool
fits (int from, int to)
{
  const struct softgpu_gpu *gpu = driver.tie.state->gpu;
  return from >= 0 && to >= 0 && !gpu[to].parent && !gpu[to].divided && !gpu[to].lost
         && strcmp (gpu[from].name, gpu[to].name) == 0;
}

bool
softgpu_uses_gpu (const struct softgpu_slot *slot, unsigned gpu)
{
  return slot->gpu[gpu].contexts || slot->gpu[gpu].held_bytes;
}

CUresult
softgpu_read_pairs (const struct softgpu_slot *slot, const CUcheckpointRestoreArgs *args,
                    unsigned moves[SOFTGPU_MAX_ENTRIES])
{
  const struct softgpu_state *state = driver.tie.state;
  bool listed[SOFTGPU_MAX_ENTRIES] = { 0 }, taken[SOFTGPU_MAX_ENTRIES] = { 0 };
  for (unsigned gpu = 0; gpu < SOFTGPU_MAX_ENTRIES; gpu++)
    moves[gpu] = gpu;
  if (!args || !args->gpuPairsCount)
    return CUDA_SUCCESS;
  REQUIRE (args->gpuPairs && args->gpuPairsCount <= state->entries, CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < args->gpuPairsCount; i++)
    {
      int from = index_of (&args->gpuPairs[i].oldUuid), to = index_of (&args->gpuPairs[i].newUuid);
      REQUIRE (fits (from, to) && !listed[from] && !taken[to], CUDA_ERROR_INVALID_VALUE);
      moves[from] = (unsigned) to;
      listed[from] = taken[to] = true;
    }
  for (unsigned gpu = 0; gpu < state->entries; gpu++)
    REQUIRE (listed[gpu] || !softgpu_uses_gpu (slot, gpu), CUDA_ERROR_INVALID_VALUE);
  /* What no pair names gets what is left, so that each GPU has one place.  */
  for (unsigned gpu = 0, next = 0; gpu < SOFTGPU_MAX_ENTRIES; gpu++)
    if (!listed[gpu])
      {
        while (taken[next] && next < SOFTGPU_MAX_ENTRIES - 1)
          next++;
        moves[gpu] = taken[gpu] ? next : gpu;
        taken[moves[gpu]] = true;
      }
  return CUDA_SUCCESS;
}

void
softgpu_move_process (struct softgpu_slot *slot, const unsigned moves[SOFTGPU_MAX_ENTRIES])
{
  static struct softgpu_slot_gpu before[SOFTGPU_MAX_ENTRIES];
  memcpy (before, slot->gpu, sizeof before);
  for (unsigned gpu = 0; gpu < SOFTGPU_MAX_ENTRIES; gpu++)
    memcpy (&slot->gpu[moves[gpu]], &before[gpu], sizeof before[gpu]);
  for (unsigned began = 0; began < SOFTGPU_MAX_ENTRIES; began++)
    slot->place[began] = moves[slot->place[began]];
}
