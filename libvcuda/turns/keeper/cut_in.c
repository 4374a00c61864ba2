/* Containers with low latency, which cut into the turns of others.

   A container that has rested cuts in: the holder's word becomes WAIT at once. Most queues drain
   within DRAIN_NS. Where one takes longer, the word of the container that cuts in becomes HELD
   beside it, and the driver slices the two. Each container with work then pays an equal part of
   the time, since the keeper cannot see the slices. A container does so once in BESIDE_NS
   at most: one that hides its work gains no more by it.

   Urgent time is what allows it: it grows by the container's rate while the container rests, is
   paid as the budget is, and does not grow while the container waits. So a container that always
   has work never cuts in, and takes turns like any other. Each time costs PRICE_NS of urgent time
   and budget, of which the holder gets HOLDERS_NS: about what it loses by one pass more, or by the
   switches in a kernel that it ran alone. So a container that cuts in often pays for that from its
   own share.

   Where the GPU does not preempt, the time beside a long kernel is that kernel's alone. It shows
   by the kernel's queue draining first. USELESS times in a row, and for some time a container that
   cuts in waits until the queue has drained. Until the first success on a GPU such time is not
   divided.  */

#include "keeper/cut_in.h"

/* What a container without turns may have in flight (shim/compute/turn.c).  */
#define DRAIN_NS (4 * MS)
#define PRICE_NS (MS / 2)
#define HOLDERS_NS (MS / 5)
#define BESIDE_NS TURN_NS
/* Shorter time beside a queue teaches nothing.  */
#define LEARNED_NS (5 * MS)
#define USELESS 3
#define SHORTEST_PAUSE_NS (60000 * MS)
#define LONGEST_PAUSE_NS (3600000 * MS)

#define MILLION 1000000

static bool
drains_beside (const struct tenant *tenant)
{
  return tenant->cut && tenant->busy;
}

static bool
has_work (const struct tenant *holder)
{
  return !holder->idle_ns;
}

/* Whether its queue has been empty since it cut in.  */
static bool
has_progressed (const struct tenant *holder)
{
  return !has_work (holder) || holder->signals.work_begun - holder->granted_begun > 1;
}

/* The work of the one that cut in has ended while another queue still drains.  */
static void
note_success (struct gpu *gpu)
{
  gpu->cut_in_ns = 0;
  gpu->cuts_known = true;
  gpu->cuts_useless = 0;
  gpu->cuts_pause_ns = 0;
}

bool
cut_in_is_on (const struct gpu *gpu)
{
  for (int i = 0; i < gpu->count; i++)
    if (drains_beside (gpu->tenants[i]))
      return true;
  return false;
}

int64_t
cut_in_part_ns (const struct gpu *gpu, const struct tenant *tenant, int64_t ns)
{
  if (!cut_in_is_on (gpu) || (tenant != gpu->holder && !drains_beside (tenant)))
    return ns;
  if (tenant == gpu->holder && !has_work (tenant))
    return 0;
  int working = gpu->holder && has_work (gpu->holder);
  for (int i = 0; i < gpu->count; i++)
    working += drains_beside (gpu->tenants[i]);
  return ns / working;
}

void
cut_in_pass_time (struct tenant *tenant, int64_t ns, int64_t paid_ns, bool waited)
{
  int64_t urgent = tenant->low ? tenant->urgent_ns - paid_ns : 0;
  if (tenant->low && !waited)
    urgent += (int64_t) ((__int128) tenant->claim.rate_ppm * ns / MILLION);
  urgent = urgent > 0 ? urgent : 0;
  tenant->urgent_ns = urgent < MOST_SAVED_NS ? urgent : MOST_SAVED_NS;
}

struct tenant *
cut_in_next (const struct gpu *gpu, uint64_t now)
{
  struct tenant *next = NULL;
  /* One with low latency does not cut into the turn of another such.  */
  if (gpu->holder && gpu->holder->low)
    return NULL;
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      int64_t least = tenant == gpu->interrupter ? SHORTEST_TURN_NS : PRICE_NS + SHORTEST_TURN_NS;
      if (tenant->low && tenant->claim.wants && tenant->claim.rate_ppm && tenant->urgent_ns >= least
          && tenant->claim.budget_ns >= least && now >= tenant->distrusted_until_ns
          && (!next || tenant->claim.since_ns > next->claim.since_ns))
        next = tenant;
    }
  return next;
}

/* When the queues have had time to drain: now, where that is known to be too short for one of
   them. UINT64_MAX: none but NEXT's is busy, or one may not be cut into.  */
static uint64_t
drained_ns (const struct gpu *gpu, const struct tenant *next, uint64_t now)
{
  uint64_t moment = UINT64_MAX, least = next->beside_ns + BESIDE_NS;
  if (now < gpu->cuts_useless_until_ns)
    return UINT64_MAX;
  for (int i = 0; i < gpu->count; i++)
    {
      const struct tenant *tenant = gpu->tenants[i];
      if (tenant == next || !tenant->busy)
        continue;
      if (tenant->low)
        return UINT64_MAX;
      uint64_t then = tenant->blocks_ns + DRAIN_NS;
      if (!tenant->blocks_ns || tenant->cut || tenant->signals.busy_until_ns > then)
        then = now;
      moment = then < moment ? then : moment;
    }
  return moment > least ? moment : least;
}

struct tenant *
cut_in_due (const struct gpu *gpu, uint64_t now)
{
  struct tenant *next = cut_in_next (gpu, now);
  return next && drained_ns (gpu, next, now) <= now ? next : NULL;
}

uint64_t
cut_in_check_ns (const struct gpu *gpu, uint64_t now)
{
  const struct tenant *next = cut_in_next (gpu, now);
  uint64_t moment = next && !gpu->together ? drained_ns (gpu, next, now) : UINT64_MAX;
  return moment > now ? moment : UINT64_MAX;
}

void
cut_in_leave_to_drain (struct gpu *gpu)
{
  gpu->holder->cut = true;
  gpu->holder->bucket_pays = !gpu->pays;
  gpu->holder = NULL;
}

/* Also where its wish ends before its turn begins.  */
static void
pay_price (struct tenant *tenant)
{
  tenant->claim.budget_ns -= PRICE_NS;
  tenant->urgent_ns -= PRICE_NS;
}

void
cut_in_interrupt (struct gpu *gpu, struct tenant *tenant)
{
  gpu->interrupter = tenant;
  pay_price (tenant);
  /* Alone it pays for its work only.  */
  if (gpu->pays)
    gpu->holder->claim.budget_ns += HOLDERS_NS;
}

int64_t
cut_in_begin (struct gpu *gpu, struct tenant *tenant, uint64_t now)
{
  if (gpu->cut_in_ns && cut_in_is_on (gpu))
    note_success (gpu);
  if (gpu->interrupter != tenant)
    pay_price (tenant);
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i]->busy && gpu->tenants[i] != tenant)
      gpu->tenants[i]->cut = true;
  gpu->cut_in_ns = cut_in_is_on (gpu) ? now : 0;
  if (gpu->cut_in_ns)
    tenant->beside_ns = now;
  gpu->divided_ns = 0;
  int64_t unearned = MILLION - (int64_t) tenant->claim.rate_ppm;
  int64_t most = unearned > 0 ? (int64_t) ((__int128) tenant->urgent_ns * MILLION / unearned)
                              : MOST_SAVED_NS;
  int64_t ns = queue_turn_ns (&tenant->claim);
  return ns < most ? ns : most;
}

/* DRAINED's queue has ended first.  */
static void
note_failure (struct gpu *gpu, struct tenant *drained, uint64_t now)
{
  if (!gpu->cuts_known)
    {
      gpu->holder->claim.budget_ns += gpu->divided_ns;
      cut_in_pass_time (gpu->holder, 0, -gpu->divided_ns, false);
      drained->claim.budget_ns -= gpu->divided_ns;
    }
  bool long_enough = now - gpu->cut_in_ns >= LEARNED_NS;
  gpu->cut_in_ns = 0;
  if (!long_enough || ++gpu->cuts_useless < USELESS)
    return;
  uint64_t pause = 2 * gpu->cuts_pause_ns;
  pause = pause > SHORTEST_PAUSE_NS ? pause : SHORTEST_PAUSE_NS;
  gpu->cuts_pause_ns = pause < LONGEST_PAUSE_NS ? pause : LONGEST_PAUSE_NS;
  gpu->cuts_useless_until_ns = now + gpu->cuts_pause_ns;
  gpu->cuts_useless = 0;
  gpu->cuts_known = false;
}

void
cut_in_judge (struct gpu *gpu, uint64_t now)
{
  if (gpu->cut_in_ns && (!gpu->holder || has_progressed (gpu->holder)) && cut_in_is_on (gpu))
    note_success (gpu);
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      if (!tenant->cut || tenant->busy)
        continue;
      tenant->cut = false;
      if (tenant->bucket_pays)
        {
          tenant_take_over_bucket (tenant, now - gpu->opened_ns, now);
          /* Its event pairs contain the slices of the others, and the switches to them.  */
          tenant->claim.budget_ns += tenant->others_paid_ns + HOLDERS_NS;
        }
      tenant->bucket_pays = false;
      tenant->others_paid_ns = 0;
      if (gpu->cut_in_ns && gpu->holder && !has_progressed (gpu->holder) && !cut_in_is_on (gpu))
        note_failure (gpu, tenant, now);
      tenant_publish (tenant);
    }
}
