/* Sums up what processes hold of a GPU's memory.  */

#include "engine/account.h"

#include "engine/process_state.h"

struct softgpu_account
softgpu_account (const struct softgpu_state *state, unsigned gpu)
{
  struct softgpu_account sum = { 0 };
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    {
      if (softgpu_off_gpu (&state->slot[slot]))
        continue;
      sum.physical += state->slot[slot].gpu[gpu].held_bytes;
      sum.managed += state->slot[slot].gpu[gpu].managed_bytes;
    }
  uint64_t total = state->gpu[gpu].memory_bytes;
  uint64_t room = sum.physical < total ? total - sum.physical : 0;
  sum.resident = sum.managed < room ? sum.managed : room;
  return sum;
}

uint64_t
softgpu_on_device (const struct softgpu_account *account, const struct softgpu_slot_gpu *use)
{
  uint64_t managed = use->managed_bytes;
  if (account->resident < account->managed)
    managed = (uint64_t) ((unsigned __int128) managed * account->resident / account->managed);
  return use->held_bytes + managed;
}

struct softgpu_limit *
softgpu_limit_of (struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace)
{
  for (unsigned i = 0; pid_namespace && i < SOFTGPU_LIMITS; i++)
    if (state->limit[i].pid_namespace == pid_namespace && state->limit[i].gpu == gpu)
      return &state->limit[i];
  return NULL;
}

uint64_t
softgpu_held_by (const struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace)
{
  uint64_t held = 0;
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    if (state->slot[slot].pid_namespace == pid_namespace && !softgpu_off_gpu (&state->slot[slot]))
      held += state->slot[slot].gpu[gpu].held_bytes;
  return held;
}

void
softgpu_show_cgroup (struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace,
                     uint64_t *total, uint64_t *used)
{
  const struct softgpu_limit *limit = softgpu_limit_of (state, gpu, pid_namespace);
  if (!limit || limit->hard_bytes >= *total)
    return;
  /* The GPU may have less left than the limit promises.  */
  uint64_t left = *used < *total ? *total - *used : 0, hard = limit->hard_bytes;
  uint64_t held = softgpu_held_by (state, gpu, pid_namespace);
  uint64_t own_left = held < hard ? hard - held : 0;
  *total = hard;
  *used = hard - (own_left < left ? own_left : left);
}

bool
softgpu_has_room (struct softgpu_state *state, unsigned gpu, uint64_t pid_namespace, uint64_t bytes)
{
  uint64_t total = state->gpu[gpu].memory_bytes;
  /* Managed memory makes room: the driver moves it to the host.  */
  uint64_t held = softgpu_account (state, gpu).physical;
  if (bytes > total || held > total - bytes)
    return false;
  const struct softgpu_limit *limit = softgpu_limit_of (state, gpu, pid_namespace);
  if (!limit)
    return true;
  held = softgpu_held_by (state, gpu, pid_namespace);
  return held <= limit->hard_bytes && bytes <= limit->hard_bytes - held;
}
