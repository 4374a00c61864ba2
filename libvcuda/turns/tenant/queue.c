/* Which container gets the next turn of one GPU.  */

#include "tenant/queue.h"

#define MILLION 1000000

static int64_t
earned (uint32_t rate_ppm, int64_t ns)
{
  return (int64_t) ((__int128) rate_ppm * ns / MILLION);
}

/* For a turn of TURN, but no more than it earns in SPAN.  */
static int64_t
enough_for (const struct claimant *claimant, int64_t turn, int64_t span)
{
  /* It earns during its turn, too.  */
  int64_t enough = turn - earned (claimant->rate_ppm, turn);
  int64_t most = earned (claimant->rate_ppm, span);
  return enough < most ? enough : most;
}

static int64_t
least_of (const struct claimant *claimant)
{
  int64_t least = enough_for (claimant, TURN_NS, LEAST_SPAN_NS);
  if (claimant->turn_ns <= LONGEST_TURN_NS)
    return least;
  int64_t sole = enough_for (claimant, claimant->turn_ns, SOLE_SPAN_NS);
  return sole > least ? sole : least;
}

int64_t
queue_length_ns (int count, int64_t pass_ns, bool used)
{
  int64_t longest = count > FEW ? TURN_NS : LONGEST_TURN_NS;
  int64_t least = used && count <= FEW ? USED_TURN_NS : TURN_NS;
  int64_t ns = pass_ns < longest / PASSES_A_TURN ? PASSES_A_TURN * pass_ns : longest;
  return ns > least ? ns : least;
}

void
queue_start (struct claimant *claimant)
{
  claimant->budget_ns = LONGEST_TURN_NS - earned (claimant->rate_ppm, LONGEST_TURN_NS);
  claimant->debt_ns = 0;
}

static int64_t
reserved_of (const struct claimant *claimant)
{
  return claimant->rate_ppm < claimant->reserved_ppm ? claimant->rate_ppm : claimant->reserved_ppm;
}

static bool
is_active (const struct claimant *claimant)
{
  return claimant->wants || claimant->holds;
}

/* A resting one has no part of what is granted beyond the reserved shares.  */
static int64_t
part_of (const struct claimant *claimant, int64_t left, int64_t more)
{
  int64_t part = reserved_of (claimant), granted = claimant->rate_ppm - part;
  if (granted && is_active (claimant))
    part += more <= left ? granted : granted * left / more;
  return part;
}

void
queue_pass_debts (struct claimant *const *claimants, int count, int64_t ns)
{
  int64_t reserved = 0, more = 0, credit = INT64_MAX;
  bool waits = false;
  for (int i = 0; i < count; i++)
    if (is_active (claimants[i]))
      {
        reserved += reserved_of (claimants[i]);
        more += claimants[i]->rate_ppm - reserved_of (claimants[i]);
        waits |= !claimants[i]->holds;
      }
  int64_t left = reserved < MILLION ? MILLION - reserved : 0;
  for (int i = 0; i < count; i++)
    {
      struct claimant *claimant = claimants[i];
      int64_t part = part_of (claimant, left, more);
      int64_t debt = claimant->debt_ns - earned ((uint32_t) part, ns);
      debt += claimant->holds && waits ? ns : 0;
      if (!is_active (claimant))
        debt = debt > 0 ? debt : 0;
      else if (part)
        {
          int64_t span = debt < 0 ? (int64_t) ((__int128) -debt * MILLION / part) : 0;
          credit = span < credit ? span : credit;
        }
      claimant->debt_ns = debt < DEEPEST_DEBT_NS ? debt : DEEPEST_DEBT_NS;
    }
  for (int i = 0; i < count && credit != INT64_MAX; i++)
    if (is_active (claimants[i]))
      claimants[i]->debt_ns += earned ((uint32_t) part_of (claimants[i], left, more), credit);
}

void
queue_level (struct claimant *const *claimants, int count)
{
  int64_t least = INT64_MAX;
  for (int i = 0; i < count; i++)
    if (claimants[i]->rate_ppm && is_active (claimants[i]))
      {
        int64_t span
            = (int64_t) ((__int128) claimants[i]->budget_ns * MILLION / claimants[i]->rate_ppm);
        least = span < least ? span : least;
      }
  if (least == INT64_MAX || least <= MOST_SPAN_NS)
    return;
  for (int i = 0; i < count; i++)
    {
      struct claimant *claimant = claimants[i];
      /* What another has saved is no surplus of one that pauses just now.  */
      if (!is_active (claimant))
        continue;
      int64_t budget = claimant->budget_ns - earned (claimant->rate_ppm, least - MOST_SPAN_NS);
      int64_t owed = -claimant->debt_ns;
      owed = owed < claimant->budget_ns ? owed : claimant->budget_ns;
      claimant->budget_ns = budget > owed ? budget : owed;
    }
}

void
queue_raise (struct claimant *const *claimants, int count, const struct claimant *claimant,
             int64_t since_ns)
{
  since_ns = since_ns < TURN_NS ? since_ns : TURN_NS;
  if (claimant->turn_ns <= TURN_NS || claimant->turn_ns > LONGEST_TURN_NS
      || queue_turn_ns (claimant) >= claimant->turn_ns)
    return;
  for (int i = 0; i < count; i++)
    claimants[i]->budget_ns += earned (claimants[i]->rate_ppm, since_ns / 100);
}

void
queue_pass_time (struct claimant *claimant, int64_t ns)
{
  int64_t budget = claimant->budget_ns + earned (claimant->rate_ppm, ns);
  claimant->since_ns = claimant->holds ? 0 : claimant->since_ns + ns;
  if (claimant->holds)
    budget -= ns;
  else if (!claimant->wants && budget > MOST_SAVED_NS)
    budget = claimant->budget_ns > MOST_SAVED_NS ? claimant->budget_ns : MOST_SAVED_NS;
  claimant->budget_ns = budget;
}

static void
pay (struct claimant *claimant, int64_t ns)
{
  int64_t budget = claimant->budget_ns - ns;
  budget = budget > -DEEPEST_DEBT_NS ? budget : -DEEPEST_DEBT_NS;
  claimant->budget_ns = budget < claimant->budget_ns ? budget : claimant->budget_ns;
}

static bool
gets_more (const struct claimant *claimant, const struct claimant *but, bool also_fixed)
{
  return claimant != but && is_active (claimant) && (also_fixed || !claimant->fixed);
}

static void
refund (struct claimant *const *claimants, int count, const struct claimant *but, bool also_fixed,
        int64_t ns)
{
  int64_t rates = 0;
  for (int i = 0; i < count; i++)
    if (gets_more (claimants[i], but, also_fixed))
      rates += claimants[i]->rate_ppm;
  for (int i = 0; i < count && rates; i++)
    if (gets_more (claimants[i], but, also_fixed))
      claimants[i]->budget_ns += ns * claimants[i]->rate_ppm / rates;
}

void
queue_charge_hidden (struct claimant *const *claimants, int count)
{
  for (int i = 0; i < count; i++)
    {
      struct claimant *claimant = claimants[i];
      if (!claimant->hidden_ns)
        continue;
      pay (claimant, 2 * claimant->hidden_ns);
      refund (claimants, count, claimant, true, claimant->hidden_ns * 3 / 2);
      claimant->hidden_ns = 0;
    }
}

void
queue_charge_false (struct claimant *const *claimants, int count, struct claimant *claimant,
                    int64_t ns)
{
  pay (claimant, ns);
  refund (claimants, count, claimant, false, ns);
}

void
queue_take_over (struct claimant *claimant, int64_t bucket_ns, int64_t since_ns, int64_t alone_ns)
{
  int64_t most = claimant->budget_ns + earned (claimant->rate_ppm, alone_ns);
  most = most < BUCKET_NS ? most : BUCKET_NS;
  since_ns = since_ns < 0 || since_ns > DEEPEST_DEBT_NS ? DEEPEST_DEBT_NS : since_ns;
  bucket_ns = bucket_ns > -DEEPEST_DEBT_NS ? bucket_ns : -DEEPEST_DEBT_NS;
  bucket_ns = bucket_ns < BUCKET_NS ? bucket_ns : BUCKET_NS;
  int64_t budget = bucket_ns + earned (claimant->rate_ppm, since_ns);
  claimant->budget_ns = budget < most ? budget : most;
}

bool
queue_is_ready (const struct claimant *claimant)
{
  return claimant->wants && claimant->rate_ppm && claimant->budget_ns >= least_of (claimant);
}

bool
queue_may_be_alone (const struct claimant *claimant)
{
  return claimant->wants && claimant->budget_ns >= (claimant->fixed ? 0 : -MOST_AHEAD_NS);
}

bool
queue_has_half (const struct claimant *claimant)
{
  return claimant->rate_ppm && 2 * claimant->budget_ns >= least_of (claimant);
}

int
queue_next (struct claimant *const *claimants, int count)
{
  int next = -1;
  int64_t least = INT64_MAX;
  for (int i = 0; i < count; i++)
    if (queue_is_ready (claimants[i]) && claimants[i]->debt_ns < least)
      least = claimants[i]->debt_ns;
  for (int i = 0; i < count; i++)
    if (queue_is_ready (claimants[i]) && claimants[i]->debt_ns - least <= MOST_AHEAD_NS
        && (next < 0 || claimants[i]->since_ns > claimants[next]->since_ns))
      next = i;
  return next;
}

static int64_t
affordable_ns (const struct claimant *claimant, int64_t most)
{
  /* It earns meanwhile, too.  */
  int64_t unearned = MILLION - (int64_t) claimant->rate_ppm;
  if (unearned <= 0 || claimant->budget_ns >= earned ((uint32_t) unearned, most))
    return most;
  return (int64_t) ((__int128) claimant->budget_ns * MILLION / unearned);
}

int64_t
queue_turn_ns (const struct claimant *claimant)
{
  int64_t ns = affordable_ns (claimant, claimant->turn_ns);
  return ns > SHORTEST_TURN_NS ? ns : SHORTEST_TURN_NS;
}

/* How long until CLAIMANT has BUDGET.  */
static int64_t
has_in (const struct claimant *claimant, int64_t budget)
{
  int64_t lacks = budget - claimant->budget_ns;
  return lacks > 0 ? (int64_t) ((__int128) lacks * MILLION / claimant->rate_ppm) + 1 : 0;
}

/* What a whole turn begins with.  */
static int64_t
whole_of (const struct claimant *claimant)
{
  int64_t least = least_of (claimant);
  int64_t whole = enough_for (claimant, claimant->turn_ns, LEAST_SPAN_NS);
  return whole > least ? whole : least;
}

int64_t
queue_whole_in (struct claimant *const *claimants, int count, const struct claimant *but)
{
  int64_t soonest = INT64_MAX;
  for (int i = 0; i < count; i++)
    if (claimants[i] != but && (claimants[i]->wants || claimants[i]->returns)
        && claimants[i]->rate_ppm)
      {
        int64_t wait = has_in (claimants[i], whole_of (claimants[i]));
        soonest = wait < soonest ? wait : soonest;
      }
  return soonest;
}

int64_t
queue_turn_among_ns (struct claimant *const *claimants, int count, const struct claimant *claimant)
{
  int64_t ns = queue_turn_ns (claimant), whole = queue_whole_in (claimants, count, claimant);
  int active = 0;
  for (int i = 0; i < count; i++)
    active += is_active (claimants[i]) || claimants[i]->returns;
  if (whole == INT64_MAX || active > FEW)
    return ns;
  int64_t most = affordable_ns (claimant, whole < SOLE_TURN_NS ? whole : SOLE_TURN_NS);
  return most > ns ? most : ns;
}

int64_t
queue_ready_in (struct claimant *const *claimants, int count)
{
  int64_t soonest = INT64_MAX;
  for (int i = 0; i < count; i++)
    if (claimants[i]->wants && claimants[i]->rate_ppm)
      {
        int64_t wait = has_in (claimants[i], least_of (claimants[i]));
        soonest = wait < soonest ? wait : soonest;
      }
  return soonest;
}
