/* How far the marks of a container are believed.  */

#include "tenant/doubt.h"

#include <stdio.h>

#include "tenant/events.h"

/* Others wait for a queue for PATIENCE_NS and twice its estimated rest, but no longer than the
   reserved share earns in five seconds, less the debt. That bound is SHORTEST_PATIENCE_NS at least
   and LONGEST_PATIENCE_NS at most.  */
#define PATIENCE_NS (1000 * MS)
#define LONGEST_PATIENCE_NS (3000 * MS)
#define SHORTEST_PATIENCE_NS (500 * MS)
#define PATIENCE_NS_A_PPM (5000 * MS / 1000000)
/* A launch marks BUSY before it learns that it has no turn; then its thread may be kept off a CPU.
 */
#define WITHOUT_TURN_NS (50 * MS)
/* The queue of one that is not believed: the shim queues less than that ahead. What begins later,
   or lasts longer, the driver slices.  */
#define BLIND_DRAIN_NS (5 * MS)
/* Above this a container is not believed. A false BUSY adds LIE_NS and the wait that it caused, a
   false WANTS half of this; each word WAIT takes EXCUSED_LIES_NS off.  */
#define MOST_LIES_NS (100 * MS)
#define LIE_NS (5 * MS)
#define EXCUSED_LIES_NS (10 * MS)
#define SHORTEST_DISTRUST_NS (5000 * MS)
#define LONGEST_DISTRUST_NS (60000 * MS)

static uint64_t
patience_of (const struct tenant *tenant)
{
  if (!tenant->may_hold_work)
    return WITHOUT_TURN_NS;
  uint64_t until = tenant->signals.busy_until_ns;
  uint64_t left = until > tenant->blocks_ns ? until - tenant->blocks_ns : 0;
  left = left < LONGEST_PATIENCE_NS ? left : LONGEST_PATIENCE_NS;
  uint64_t patience = PATIENCE_NS + 2 * left;
  int64_t most = tenant->claim.reserved_ppm * PATIENCE_NS_A_PPM - tenant->blocks_debt_ns;
  /* One that was not believed before has had its longest wait.  */
  most = most > SHORTEST_PATIENCE_NS && !tenant->distrust_ns ? most : SHORTEST_PATIENCE_NS;
  most = most < LONGEST_PATIENCE_NS ? most : LONGEST_PATIENCE_NS;
  return patience < (uint64_t) most ? patience : (uint64_t) most;
}

/* WHAT it does, for the error line and the event.  */
static void
distrust (struct tenant *tenant, uint64_t now, const char *what)
{
  uint64_t longer = 2 * tenant->distrust_ns;
  longer = longer > SHORTEST_DISTRUST_NS ? longer : SHORTEST_DISTRUST_NS;
  tenant->distrust_ns = longer < LONGEST_DISTRUST_NS ? longer : LONGEST_DISTRUST_NS;
  tenant->distrusted_until_ns = now + tenant->distrust_ns;
  tenant->lies_ns = 0;
  const char *cost = tenant->forged ? ", and its turns cost twice the time" : "";
  fprintf (stderr, "vcuda-turn-keeper: container %s %s; others wait 5 ms for its queue at most%s\n",
           tenant->container->id, what, cost);
  char text[192];
  snprintf (text, sizeof text, "it %s; for %d s others wait 5 ms for its queue at most%s", what,
            (int) (tenant->distrust_ns / (1000 * MS)), cost);
  events_record ("turn-overrun", tenant->container->id, tenant->container->uuid[tenant->gpu], text);
}

/* Its marks say nothing: as long as a process lives, one may wait for a turn.  */
static void
distrust_marks (struct tenant *tenant, uint64_t now, const char *what)
{
  tenant->forged = true;
  distrust (tenant, now, what);
  tenant->signals.marks = VCUDA_TURN_WANTS;
}

/* A container can make queries of its locks slow, by taking thousands of them: they get a hundredth
   of the time.  */
static void
bound_queries (struct tenant *tenant, uint64_t now, uint64_t spent)
{
  if (spent > LONG_QUERY_NS)
    tenant->live_due_ns = now + 100 * spent;
}

/* What it says while it has no turn, and was idle: that it uses the GPU, as a launch does for a
   moment before it learns that there is no turn; or that it wants one and yet did not begin to use
   the idle GPU, as every launch does. Others may have waited since the last reading.  */
static void
count_lies (struct tenant *tenant, const struct signals *before, uint64_t now)
{
  struct signals again = tenant->signals;
  bool idle = (tenant->word & VCUDA_TURN_STATE) == VCUDA_TURN_WAIT && !tenant->may_hold_work;
  uint32_t risen = again.marks & ~before->marks & (VCUDA_TURN_BUSY | VCUDA_TURN_WANTS);
  if (tenant->lied && tenant->blocks_ns)
    tenant->lies_ns += now - tenant->read_ns;
  /* Of a process that has ended the marks remain; and a launch may have come between the readings
     of counter and marks.  */
  if (idle && risen && now >= tenant->live_due_ns)
    {
      container_signals (tenant->container, tenant->gpu, true, &again);
      bound_queries (tenant, now, again.spent_ns);
    }
  risen &= idle ? again.marks : 0;
  if (risen & VCUDA_TURN_BUSY)
    tenant->lies_ns += LIE_NS;
  if (risen & VCUDA_TURN_WANTS && !(before->marks & VCUDA_TURN_BUSY)
      && again.work_begun == before->work_begun)
    tenant->lies_ns += MOST_LIES_NS / 2;
  tenant->lied = idle && again.marks & VCUDA_TURN_BUSY && (tenant->lied || risen & VCUDA_TURN_BUSY);
  if (tenant->lies_ns > MOST_LIES_NS)
    distrust_marks (tenant, now, "gives false signals of its GPU queue again and again");
}

bool
doubt_is_busy (struct tenant *tenant, uint64_t now)
{
  const struct signals *signals = &tenant->signals;
  if (now < tenant->distrusted_until_ns) /* then what its page says does not count */
    return tenant->may_hold_work
           && (!tenant->blocks_ns || now - tenant->blocks_ns < BLIND_DRAIN_NS);
  if (!(signals->marks & VCUDA_TURN_BUSY))
    return false;
  if (!signals->will_clear && now > signals->busy_until_ns + ESTIMATE_ERROR_NS)
    return false;
  if (!tenant->blocks_ns || now - tenant->blocks_ns <= patience_of (tenant))
    return true;
  distrust (tenant, now, "does not let its GPU queue end");
  tenant->may_hold_work = false;
  return false;
}

/* What a suspended container's page says is no lie: it has no work, and a launch that waits for the
   end of the suspension has marked BUSY. Read after the bell: what is rung after the end wakes the
   keeper again.  */
static bool
sleeps (struct tenant *tenant)
{
  const struct vcuda_limits *limits = tenant->container->limits_at;
  bool slept = tenant->suspended;
  uint32_t before = tenant->suspensions;
  tenant->suspended = __atomic_load_n (&limits->suspended, __ATOMIC_SEQ_CST) != VCUDA_AWAKE;
  tenant->suspensions = __atomic_load_n (&limits->suspensions, __ATOMIC_SEQ_CST);
  tenant->resumed = !tenant->suspended && (slept || tenant->suspensions != before);
  if (tenant->suspended)
    tenant->signals.marks = 0;
  else if (tenant->resumed && tenant->forged)
    tenant->signals.marks = VCUDA_TURN_WANTS;
  if (tenant->suspended || tenant->resumed)
    tenant->lied = false;
  return tenant->suspended || tenant->resumed;
}

void
doubt_read (struct tenant *tenant, uint64_t now, bool live)
{
  struct signals before = tenant->signals;
  live = live && now >= tenant->live_due_ns;
  tenant->readable = container_signals (tenant->container, tenant->gpu, live, &tenant->signals);
  if (!tenant->readable)
    tenant->signals = before;
  if (sleeps (tenant))
    return;
  if (now >= tenant->distrusted_until_ns)
    {
      tenant->forged = false;
      if (!tenant->readable)
        distrust_marks (tenant, now, "has cut its usage page short");
      else
        count_lies (tenant, &before, now);
    }
  else if (tenant->forged)
    tenant->signals.marks = before.marks;
  uint64_t spent = tenant->readable ? tenant->signals.spent_ns : 0;
  if (tenant->forged && live)
    tenant->signals.marks = container_is_live (tenant->container, &spent) ? VCUDA_TURN_WANTS : 0;
  if (live)
    bound_queries (tenant, now, spent);
}

void
doubt_excuse (struct tenant *tenant)
{
  tenant->lies_ns -= tenant->lies_ns < EXCUSED_LIES_NS ? tenant->lies_ns : EXCUSED_LIES_NS;
}
