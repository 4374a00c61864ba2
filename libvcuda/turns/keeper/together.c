/* Containers that use one GPU at the same time, without turns.

   Programs that use little of a GPU, in pieces that are short beside their pauses, lose more by
   waiting for turns than by time slices of the driver. Where none of those that use the GPU has a
   fixed share, each gave on its last FEWEST_YIELDED turns, and all need MOST_DEMAND_PERCENT of it
   at most, the word of each is OPEN. Each goes by its own bucket then.

   Programs with gaps that need more than that are tried together: where the GPU switches so fast
   that one works in the gaps of another, each begins its work LEAST_OF_TURNS_PERCENT as often as in
   turns at least, and all on average WORTH_PERCENT.

   It ends when one of them keeps its queue filled, when their work, as their event pairs measure
   it, fills the GPU, or when a container wants the GPU that does not fit in. Event pairs contain
   the slices of the others, so what is measured is too much rather than too little: a container
   that hides its work shows in the figures of the others.  */

#include "keeper/together.h"

/* A container may join after so many turns in a row that it gave on before their end.  */
#define FEWEST_YIELDED 16
#define MOST_DEMAND_PERCENT 60
#define MOST_MEASURED_PERCENT 80
#define CHECK_NS (20 * MS)
#define TRIAL_NS (50 * MS)
/* It may be tried where the GPU works for less than this part of its turns, in about eight of
   which, weighted by age, it began its work so often, after so many turns with no longer round.  */
#define MOST_USED_PERCENT 85
#define FEWEST_BEGUN 100
#define FEWEST_NOTED 32
#define LONGEST_ROUND_NS (500 * MS)
/* In a trial: how often each begins its work, of how often in turns; the mean of all; and the most
   that one counts in it.  */
#define LEAST_OF_TURNS_PERCENT 97
#define WORTH_PERCENT 105
#define MOST_OF_TURNS_PERCENT 200
/* After it has failed, turns for so long; each further time twice as long, until it has lasted.  */
#define SHORTEST_APART_NS (100 * MS)
#define LONGEST_APART_NS (10000 * MS)
#define LASTED_NS (2000 * MS)

/* How often it begins its work, in turns.  */
static void
note_pace (struct tenant *tenant, uint64_t since_ns)
{
  uint32_t begun = tenant->signals.work_begun - tenant->noted_begun;
  tenant->noted_begun = tenant->signals.work_begun;
  if (since_ns > LONGEST_ROUND_NS)
    {
      tenant->noted = 0;
      return;
    }
  tenant->noted++;
  tenant->begun += begun - tenant->begun / 8;
  tenant->begun_in_ns += since_ns - tenant->begun_in_ns / 8;
}

void
together_note_turn (struct tenant *tenant, uint64_t held_ns, uint64_t worked_ns, bool yielded,
                    uint64_t now)
{
  uint64_t since = now - tenant->turn_ended_ns;
  worked_ns = worked_ns < held_ns ? worked_ns : held_ns;
  note_pace (tenant, since);
  /* After a pause the time before counts little.  */
  since = since < 100 * held_ns ? since : 100 * held_ns;
  tenant->turn_ended_ns = now;
  tenant->yielded = yielded ? tenant->yielded + 1 : 0;
  tenant->in_turns_ns += held_ns - tenant->in_turns_ns / 8;
  tenant->used_ns += worked_ns - tenant->used_ns / 8;
  tenant->used_in_ns += since - tenant->used_in_ns / 8;
}

static bool
may_join (const struct tenant *tenant)
{
  return !tenant->claim.fixed && tenant->yielded >= FEWEST_YIELDED;
}

static bool
may_try (const struct tenant *tenant)
{
  return !tenant->claim.fixed && tenant->noted >= FEWEST_NOTED && tenant->begun >= FEWEST_BEGUN
         && 100 * tenant->used_ns < MOST_USED_PERCENT * tenant->in_turns_ns;
}

static void
check (struct gpu *gpu, uint64_t now)
{
  gpu->checked_ns = now;
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      tenant->checked_busy = tenant->busy;
      tenant->checked_begun = tenant->signals.work_begun;
      tenant->checked_busy_ns = tenant->signals.busy_ns;
    }
}

static void
join (struct tenant *tenant)
{
  tenant->joined = true;
  tenant_open (tenant);
}

bool
together_begins (struct gpu *gpu, uint64_t now)
{
  int joining = 0;
  uint64_t demand = 0; /* in percent */
  bool light = true, tried = true;
  if (now < gpu->apart_until_ns)
    return false;
  for (int i = 0; i < gpu->count; i++)
    if (tenant_is_recent (gpu->tenants[i], now))
      {
        const struct tenant *tenant = gpu->tenants[i];
        light &= may_join (tenant);
        tried &= may_try (tenant);
        demand += tenant->used_in_ns ? 100 * tenant->used_ns / tenant->used_in_ns : 100;
        joining++;
      }
  light &= demand <= MOST_DEMAND_PERCENT;
  if (joining < 2 || !(light || tried))
    return false;
  gpu->together = true;
  gpu->tried = !light;
  gpu->together_ns = now;
  for (int i = 0; i < gpu->count; i++)
    if (tenant_is_recent (gpu->tenants[i], now))
      join (gpu->tenants[i]);
  check (gpu, now);
  return true;
}

static void
end (struct gpu *gpu, uint64_t now, bool failed)
{
  gpu->together = false;
  for (int i = 0; i < gpu->count; i++)
    if (gpu->tenants[i]->joined)
      {
        struct tenant *tenant = gpu->tenants[i];
        tenant->joined = false;
        tenant->yielded = failed ? 0 : tenant->yielded;
        tenant_write_word (tenant, VCUDA_TURN_WAIT, 0);
        tenant_take_over_bucket (tenant, 0, now);
        tenant_blocks (tenant, now);
      }
  if (!failed)
    return;
  uint64_t apart = now - gpu->together_ns > LASTED_NS ? 0 : 2 * gpu->apart_ns;
  apart = apart > SHORTEST_APART_NS ? apart : SHORTEST_APART_NS;
  gpu->apart_ns = apart < LONGEST_APART_NS ? apart : LONGEST_APART_NS;
  gpu->apart_until_ns = now + gpu->apart_ns;
}

/* Since the last check.  */
static bool
is_crowded (const struct gpu *gpu, uint64_t now)
{
  uint64_t passed = now - gpu->checked_ns, measured = 0;
  for (int i = 0; i < gpu->count; i++)
    {
      const struct tenant *tenant = gpu->tenants[i];
      if (!tenant->joined)
        continue;
      /* A false figure hides nothing of the others' in the sum; one that falls counts as full.  */
      uint64_t busy = tenant->signals.busy_ns - tenant->checked_busy_ns;
      measured += busy < passed ? busy : passed;
      if (tenant->busy && tenant->checked_busy
          && tenant->checked_begun == tenant->signals.work_begun)
        return true;
    }
  return !gpu->tried && measured > passed * MOST_MEASURED_PERCENT / 100;
}

/* Whether one of them began its work less often than in turns, or all hardly more often. What a
   page says counts for its own container only.  */
static bool
is_worse (const struct gpu *gpu, uint64_t now)
{
  uint64_t passed = now - gpu->checked_ns, sum = 0, joined = 0;
  for (int i = 0; i < gpu->count; i++)
    {
      const struct tenant *tenant = gpu->tenants[i];
      if (!tenant->joined)
        continue;
      uint64_t begun = tenant->signals.work_begun - tenant->checked_begun;
      uint64_t part = 100 * begun * tenant->begun_in_ns / (passed * tenant->begun);
      if (part < LEAST_OF_TURNS_PERCENT)
        return true;
      sum += part < MOST_OF_TURNS_PERCENT ? part : MOST_OF_TURNS_PERCENT;
      joined++;
    }
  return sum < joined * WORTH_PERCENT;
}

void
together_judge (struct gpu *gpu, uint64_t now)
{
  int recent = 0;
  bool wanted = false;
  for (int i = 0; i < gpu->count; i++)
    {
      struct tenant *tenant = gpu->tenants[i];
      wanted |= tenant->joined && tenant->suspended; /* turns begin anew without it */
      if (!gpu->tried && !tenant->joined && tenant->claim.wants && may_join (tenant))
        join (tenant);
      wanted |= !tenant->joined && tenant->claim.wants;
      recent += tenant_is_recent (tenant, now);
    }
  bool due = now >= together_check_ns (gpu), crowded = due && is_crowded (gpu, now);
  crowded |= due && gpu->tried && is_worse (gpu, now);
  if (wanted || crowded || (due && recent < 2))
    end (gpu, now, crowded);
  else if (due)
    check (gpu, now);
}

uint64_t
together_check_ns (const struct gpu *gpu)
{
  return gpu->checked_ns + (gpu->tried ? TRIAL_NS : CHECK_NS);
}
