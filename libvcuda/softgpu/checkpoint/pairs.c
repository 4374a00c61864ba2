/* The pairs of GPUs of a restore: an old one, and the one that takes its place.  */

#include "checkpoint/target.h"

#include <string.h>

#include "driver/device.h"

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
