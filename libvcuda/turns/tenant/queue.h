/* Which container gets the next turn of one GPU, and for how long. Pure: it reads no clock and no
   page.

   A budget is GPU time in nanoseconds. It grows by the container's rate; a turn is paid from it,
   from grant to release, whatever the container did with it. A container that waits has no
   bound of its own, so it gets back what a long kernel of a neighbour took; one that rests saves up
   a little. Of those that have enough for a turn, the one that had its last turn longest ago is
   next. One with MOST_AHEAD_NS more debt than the least of these is passed over.

   What holders pay is what all earn, where the rates add up to the whole. So the sum of the budgets
   stays, but for time in which no claimant holds the GPU: it is earned and not paid. queue_level
   takes from all what is more than enough for whole turns.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#define MS 1000000ll

/* The length of a turn. Where no more than FEW want the GPU, and all use their turns to the end, it
   is USED_TURN_NS: none of them waits for one request. Where a pass from one container to the next
   loses much, and no more than FEW want the GPU, turns are longer: PASSES_A_TURN times that.  */
#define TURN_NS (15 * MS)
#define USED_TURN_NS (20 * MS)
#define LONGEST_TURN_NS (30 * MS)
#define FEW 4
#define PASSES_A_TURN 40
#define SHORTEST_TURN_NS (MS / 2)
/* A turn begins when there is enough for one of TURN_NS, so that passing turns costs little; a
   small share does not wait longer for it than this.  */
#define LEAST_SPAN_NS (200 * MS)
/* A turn that no other container waits for: longer, so that fewer drains interrupt the work, after
   a pause of SOLE_SPAN_NS at most where that is enough for one of TURN_NS.  */
#define SOLE_TURN_NS (6 * TURN_NS)
#define SOLE_SPAN_NS (50 * MS)
/* The smallest budget of those that want or hold is kept below what it earns in this time: enough
   for whole turns of sixteen.  */
#define MOST_SPAN_NS (16 * TURN_NS)
/* What a bucket saves (shim/compute/throttle.c), and the deepest debt that is taken over.  */
#define BUCKET_NS (10 * MS)
#define DEEPEST_DEBT_NS (2000 * MS)
/* One with that much more debt than another has its turn after that.  */
#define MOST_AHEAD_NS (2 * LONGEST_TURN_NS)
/* Saved while resting: a request after a pause does not wait for its budget.  */
#define MOST_SAVED_NS (30 * MS)

struct claimant
{
  uint32_t rate_ppm;     /* its part of the GPU's time */
  uint32_t reserved_ppm; /* what of the rate no other container takes */
  bool fixed;            /* its policy never gives it more than reserved_ppm */
  int64_t budget_ns;
  int64_t debt_ns;   /* how long it held while others waited, less its part of the whole */
  int64_t turn_ns;   /* how long its turns are */
  int64_t since_ns;  /* since its last turn */
  int64_t hidden_ns; /* work beside its turns, not charged yet */
  bool wants;        /* waits for a turn */
  bool returns;      /* it has just used its turn to the end, and will soon want the next one */
  bool holds;        /* has the turn, and pays for it */
};

/* How long a turn of one of COUNT claimants is, where a pass loses PASS_NS. USED: all have used
   their last turns to the end.  */
int64_t queue_length_ns (int count, int64_t pass_ns, bool used);

/* A new claimant's budget: enough for one turn, however long.  */
void queue_start (struct claimant *claimant);

/* NS pass.  */
void queue_pass_time (struct claimant *claimant, int64_t ns);

/* Charges hidden work: twice its time, because the GPU switches between it and the work of others,
   but no budget falls below -DEEPEST_DEBT_NS by that.
   The others that want the GPU get what it took of their turns and a half more, by rate.  */
void queue_charge_hidden (struct claimant *const *claimants, int count);

/* Charges a turn of NS once more, because its holder CLAIMANT gives false signals: its hidden work
   may be too little to be found. The others that want the GPU and may have more than their share
   get that time, by rate.  */
void queue_charge_false (struct claimant *const *claimants, int count, struct claimant *claimant,
                         int64_t ns);

/* NS pass, for the debts. The arbiter grants to one what another seems to leave, so rates may add
   up to more than the whole. Here they are cut to that where more than one wants or holds, but not
   below what is reserved. What all that are active are owed is taken from each.  */
void queue_pass_debts (struct claimant *const *claimants, int count, int64_t ns);

/* The container was alone for ALONE_NS, and its own bucket paid: it had BUCKET_NS, as it says
   itself, SINCE_NS ago. The queue takes that over, but for more than the bucket saves, and for more
   than a container that did not work meanwhile would have.  */
void queue_take_over (struct claimant *claimant, int64_t bucket_ns, int64_t since_ns,
                      int64_t alone_ns);

/* Where each claimant that wants or holds has more than MOST_SPAN_NS of its rate: takes the least
   surplus from their budgets, by rate, but not what is owed to one.  */
void queue_level (struct claimant *const *claimants, int count);

/* Where turns are longer than TURN_NS and CLAIMANT's budget is too small for one: adds to all what
   they earn in a hundredth of SINCE_NS, or of TURN_NS if that is less, so that turns get longer
   slowly. SINCE_NS: since the last turn began.  */
void queue_raise (struct claimant *const *claimants, int count, const struct claimant *claimant,
                  int64_t since_ns);

/* Whether it may begin a turn.  */
bool queue_is_ready (const struct claimant *claimant);

/* Whether its budget lets it have the GPU alone.  */
bool queue_may_be_alone (const struct claimant *claimant);

/* Whether its budget is half of what a turn begins with: with less it soon waits for its budget, so
   the keeper need not poll to give it time alone.  */
bool queue_has_half (const struct claimant *claimant);

/* The index of the one that has the next turn; -1: none is ready.  */
int queue_next (struct claimant *const *claimants, int count);

/* How long its turn may last.  */
int64_t queue_turn_ns (const struct claimant *claimant);

/* How long until one that wants or returns, other than BUT, has enough for a whole turn; INT64_MAX:
   there is none.  */
int64_t queue_whole_in (struct claimant *const *claimants, int count, const struct claimant *but);

/* How long the turn of CLAIMANT may last where others want the GPU too: that long, or, among FEW,
   until another has enough for a whole turn, so that no turn ends for nothing. No longer than
   SOLE_TURN_NS.  */
int64_t queue_turn_among_ns (struct claimant *const *claimants, int count,
                             const struct claimant *claimant);

/* How long until one that wants is ready; INT64_MAX: none wants.  */
int64_t queue_ready_in (struct claimant *const *claimants, int count);
