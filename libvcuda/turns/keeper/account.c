/* What containers pay, and what their turns lose.  */

#include "keeper/account.h"

#include "keeper/cut_in.h"
#include "keeper/together.h"

/* A program that began its work more often than this in a turn has left the GPU idle in between. In
   a longer turn it may begin as much more often.  */
#define MOST_BEGUN 8
#define WAKING_NS (MS / 10)

/* Whether TENANT may use the GPU, or drains, without a turn that it pays for.  */
static bool
is_free (const struct gpu *gpu, const struct tenant *tenant)
{
  if (tenant == gpu->holder)
    return !gpu->pays;
  return tenant->joined || tenant->bucket_pays || tenant->blocks_ns
         || (tenant->word & VCUDA_TURN_STATE) == VCUDA_TURN_NONE;
}

void
account_pass_time (struct gpu *gpu, uint64_t now)
{
  int64_t ns = (int64_t) (now - gpu->passed_ns);
  struct claimant *claimants[gpu->count];
  int64_t false_ns[gpu->count];
  gpu->passed_ns = now;
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      bool holds = tenant == gpu->holder;
      claimants[i] = &tenant->claim;
      false_ns[i] = 0;
      int64_t part = cut_in_part_ns (gpu, tenant, ns);
      bool pays = holds && (gpu->pays || gpu->revoked);
      /* A queue that holds up the others is paid for, too.  */
      tenant->claim.holds = part && (holds ? pays : tenant->blocks_ns != 0);
      tenant->free_ns += is_free (gpu, tenant) ? (uint64_t) ns : 0;
      tenant->false_ns += tenant->forged ? (uint64_t) ns : 0;
      if (tenant->bucket_pays)
        tenant->others_paid_ns += ns - part;
      /* Alone it pays by its bucket; once others wait for its queue, by its budget as well.  */
      if ((holds && !pays) || tenant->bucket_pays)
        continue;
      bool waits = !holds && tenant->claim.wants;
      bool for_share = waits && !gpu->holder && !queue_is_ready (&tenant->claim);
      queue_pass_time (&tenant->claim, ns);
      if (tenant->claim.holds)
        tenant->claim.budget_ns += ns - part;
      if (tenant->claim.holds && tenant->forged && another_wants (gpu, tenant))
        false_ns[i] = part;
      cut_in_pass_time (tenant, ns, tenant->claim.holds ? part : 0, waits);
      if (holds && part < ns)
        gpu->divided_ns += part;
      tenant->held_ns += (holds && gpu->pays) || tenant->cut ? (uint64_t) part : 0;
      tenant->waited_ns += waits ? (uint64_t) ns : 0;
      tenant->waited_for_share_ns += for_share ? (uint64_t) ns : 0;
      gpu->new_figures |= holds || waits;
    }
  queue_charge_hidden (claimants, gpu->count);
  for (int i = 0; i < gpu->count; i++)
    if (false_ns[i])
      queue_charge_false (claimants, gpu->count, claimants[i], false_ns[i]);
  queue_pass_debts (claimants, gpu->count, ns);
  queue_level (claimants, gpu->count);
}

void
account_begin_turn (struct tenant *tenant)
{
  tenant->granted_held_ns = tenant->held_ns;
  tenant->granted_busy_ns = tenant->signals.busy_ns;
}

/* Learns what a pass takes. With work to the end of the turn and few gaps: the time LOST of it, and
   the delay of the first work, which its event pair contains. With many gaps: that delay, the time
   beyond the turn's end, and two wake-ups.  */
static void
learn_pass (const struct gpu *gpu, uint64_t lost, uint64_t now)
{
  struct tenant *holder = gpu->holder;
  uint64_t turn = (uint64_t) holder->claim.turn_ns;
  uint64_t longer = gpu->until_ns > gpu->least_until_ns ? gpu->until_ns - gpu->least_until_ns : 0;
  uint32_t begun = holder->signals.work_begun - holder->granted_begun;
  bool has_gaps = begun * turn > MOST_BEGUN * (turn + longer);
  if (gpu->sole)
    return;
  if (has_gaps ? now < gpu->until_ns : !holder->claim.wants)
    return;
  uint64_t pass = holder->signals.switch_ns;
  pass += has_gaps ? WAKING_NS + now - gpu->until_ns : lost;
  holder->pass_ns = holder->pass_ns - holder->pass_ns / 4 + pass / 4;
}

void
account_end_turn (struct gpu *gpu, uint64_t now)
{
  struct tenant *holder = gpu->holder;
  uint64_t held = holder->held_ns - holder->granted_held_ns;
  uint64_t worked = holder->signals.busy_ns - holder->granted_busy_ns;
  uint64_t lost = held > worked ? held - worked : 0;
  holder->lost_ns += lost;
  gpu->lost_ns += lost;
  if (gpu->pays && !holder->suspended)
    {
      learn_pass (gpu, lost, now);
      together_note_turn (holder, held, worked, gpu->yields, now);
    }
  holder->used_turns
      = gpu->pays && !gpu->yields && now >= gpu->until_ns ? holder->used_turns + 1 : 0;
  holder->rings = holder->rang;
  holder->steady = gpu->yields && !holder->rang ? 0 : holder->steady + 1;
  account_begin_turn (holder);
}
