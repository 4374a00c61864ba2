/* One container on one GPU.  */

#include "tenant.h"

#include <stdio.h>

#include "bells.h"
#include "events.h"

/* How much later than its own estimate a queue may end.  */
#define ESTIMATE_ERROR_NS (3 * MS / 2)
/* How long others wait for a queue that does not end, beyond twice its estimate.  */
#define PATIENCE_NS (1000 * MS)
#define LONGEST_PATIENCE_NS (3000 * MS)
/* Nor longer than the container's share pays for in five seconds, less its debt.  */
#define SHORTEST_PATIENCE_NS (500 * MS)
#define PATIENCE_NS_A_PPM (5000 * MS / 1000000)
/* A launch marks BUSY before it learns that it has no turn; then its thread may be kept off a CPU.
 */
#define WITHOUT_TURN_NS (50 * MS)
/* The queue of one that is not believed: the shim queues less than that ahead. What begins later,
   or lasts longer, the driver slices.  */
#define BLIND_DRAIN_NS (5 * MS)
/* All such waits together; each counts for LIE_NS more, and a turn excuses some of them.  */
#define MOST_LIES_NS (100 * MS)
#define LIE_NS (5 * MS)
#define EXCUSED_LIES_NS (10 * MS)
#define SHORTEST_DISTRUST_NS (5000 * MS)
#define LONGEST_DISTRUST_NS (60000 * MS)
#define CHECK_NS (2 * MS)
#define RECENT_NS (5 * MS)
#define LONG_QUERY_NS (MS / 2)
#define LEASE_NS (500 * MS)
/* A bell may ring two thousand times a second, after a burst of forty.  */
#define RING_NS (MS / 4)
#define MOST_RING_DEBT_NS (20 * MS)

#define FIELD(name) offsetof (struct vcuda_limits_gpu, name)

static uint64_t
patience_of (const struct tenant *tenant)
{
  if (!tenant->allowed)
    return WITHOUT_TURN_NS;
  uint64_t until = tenant->signals.busy_until_ns;
  uint64_t left = until > tenant->blocks_ns ? until - tenant->blocks_ns : 0;
  left = left < LONGEST_PATIENCE_NS ? left : LONGEST_PATIENCE_NS;
  uint64_t patience = PATIENCE_NS + 2 * left;
  int64_t most = tenant->claim.reserved_ppm * PATIENCE_NS_A_PPM - tenant->blocks_debt_ns;
  most = most > SHORTEST_PATIENCE_NS ? most : SHORTEST_PATIENCE_NS;
  most = most < LONGEST_PATIENCE_NS ? most : LONGEST_PATIENCE_NS;
  return patience < (uint64_t) most ? patience : (uint64_t) most;
}

/* WHAT it does, as told to people.  */
static void
distrust (struct tenant *tenant, uint64_t now, const char *what)
{
  uint64_t longer = 2 * tenant->distrust_ns;
  longer = longer > SHORTEST_DISTRUST_NS ? longer : SHORTEST_DISTRUST_NS;
  tenant->distrust_ns = longer < LONGEST_DISTRUST_NS ? longer : LONGEST_DISTRUST_NS;
  tenant->distrusted_until_ns = now + tenant->distrust_ns;
  tenant->lies_ns = 0;
  fprintf (stderr, "vcuda-turn-keeper: container %s %s; others go on without waiting for it\n",
           tenant->container->id, what);
  char text[160];
  snprintf (text, sizeof text, "it %s; for %d s other containers do not wait for it", what,
            (int) (tenant->distrust_ns / (1000 * MS)));
  events_record ("turn-overrun", tenant->container->id, tenant->container->uuid[tenant->gpu], text);
}

/* Its marks say nothing: as long as a process lives, one may wait for a turn.  */
static void
distrust_marks (struct tenant *tenant, uint64_t now, const char *what)
{
  distrust (tenant, now, what);
  tenant->forged = true;
  tenant->signals.marks = VCUDA_TURN_WANTS;
}

/* A container can make queries of its locks slow, by taking thousands of them: they get a hundredth
   of the time.  */
static void
bound_queries (struct tenant *tenant, uint64_t began)
{
  uint64_t now = bells_now (), took = now - began;
  if (took > LONG_QUERY_NS)
    tenant->live_due_ns = now + 100 * took;
}

/* What it says while it has no turn, and was idle: that it uses the GPU, as a launch does for a
   moment before it learns that there is no turn; or that it wants one and yet did not begin to use
   the idle GPU, as every launch does. Others may have waited since the last reading.  */
static void
count_lies (struct tenant *tenant, const struct signals *before, uint64_t now)
{
  struct signals again = tenant->signals;
  bool idle = (tenant->word & VCUDA_TURN_STATE) == VCUDA_TURN_WAIT && !tenant->allowed;
  uint32_t risen = again.marks & ~before->marks & (VCUDA_TURN_BUSY | VCUDA_TURN_WANTS);
  if (tenant->lied && tenant->blocks_ns)
    tenant->lies_ns += now - tenant->read_ns;
  /* Of a process that has ended the marks remain; and a launch may have come between the readings
     of counter and marks.  */
  if (idle && risen && now >= tenant->live_due_ns)
    {
      container_signals (tenant->container, tenant->gpu, true, &again);
      bound_queries (tenant, now);
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

/* Without what its page says.  */
static bool
may_be_busy (const struct tenant *tenant, uint64_t now)
{
  return tenant->allowed && (!tenant->blocks_ns || now - tenant->blocks_ns < BLIND_DRAIN_NS);
}

static bool
is_busy (struct tenant *tenant, uint64_t now)
{
  const struct signals *signals = &tenant->signals;
  if (now < tenant->distrusted_until_ns)
    return may_be_busy (tenant, now);
  if (!(signals->marks & VCUDA_TURN_BUSY))
    return false;
  if (!signals->will_clear && now > signals->busy_until_ns + ESTIMATE_ERROR_NS)
    return false;
  if (!tenant->blocks_ns || now - tenant->blocks_ns <= patience_of (tenant))
    return true;
  distrust (tenant, now, "does not let its GPU queue end");
  tenant->allowed = false;
  return false;
}

void
tenant_read (struct tenant *tenant, uint64_t now, bool live)
{
  struct signals before = tenant->signals;
  live = live && now >= tenant->live_due_ns;
  tenant->readable = container_signals (tenant->container, tenant->gpu, live, &tenant->signals);
  if (!tenant->readable)
    tenant->signals = before;
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
  if (tenant->forged && live)
    tenant->signals.marks = container_is_live (tenant->container) ? VCUDA_TURN_WANTS : 0;
  if (live)
    bound_queries (tenant, now);
  tenant->rang = tenant->signals.bell != before.bell;
  bool first = !tenant->read_ns;
  uint64_t paid = now - tenant->read_ns;
  tenant->read_ns = now;
  tenant->ring_debt_ns = tenant->ring_debt_ns > paid ? tenant->ring_debt_ns - paid : 0;
  if (tenant->rang)
    tenant_woke (tenant);
  tenant->claim.rate_ppm
      = container_rate_ppm (tenant->container, tenant->gpu, now, &tenant->claim.reserved_ppm,
                            &tenant->claim.fixed, &tenant->low);
  if (!tenant->claim.turn_ns)
    tenant->claim.turn_ns = TURN_NS;
  if (first)
    {
      queue_start (&tenant->claim);
      tenant->urgent_ns = TURN_NS;
    }
  tenant->claim.wants = tenant->signals.marks & VCUDA_TURN_WANTS;
  tenant->busy = is_busy (tenant, now);
  if (!tenant->busy)
    tenant->blocks_ns = 0;
  if ((tenant->word & VCUDA_TURN_STATE) != VCUDA_TURN_WAIT)
    tenant->allowed = true;
  else if (!tenant->busy)
    tenant->allowed = false;
  bool began = tenant->signals.work_begun != before.work_begun;
  if (tenant->busy || tenant->claim.wants || began)
    tenant->active_ns = now;
  if (tenant->busy || tenant->claim.wants || began || !tenant->idle_ns)
    tenant->idle_ns = tenant->busy || tenant->claim.wants ? 0 : now;
}

bool
tenant_is_recent (const struct tenant *tenant, uint64_t now)
{
  return tenant->active_ns && now - tenant->active_ns < RECENT_NS;
}

void
tenant_woke (struct tenant *tenant)
{
  tenant->ring_debt_ns += RING_NS;
}

bool
tenant_is_muted (const struct tenant *tenant)
{
  return !tenant->readable || tenant->ring_debt_ns > MOST_RING_DEBT_NS;
}

void
tenant_blocks (struct tenant *tenant, uint64_t now)
{
  if (!tenant->busy || tenant->blocks_ns)
    return;
  tenant->blocks_ns = now;
  tenant->blocks_debt_ns = tenant->claim.debt_ns;
}

uint64_t
tenant_check_ns (const struct tenant *tenant, uint64_t now)
{
  const struct signals *signals = &tenant->signals;
  uint64_t ends = signals->busy_until_ns + ESTIMATE_ERROR_NS + 1;
  uint64_t check = now + CHECK_NS;
  return signals->will_clear || ends <= now || ends > check ? check : ends;
}

bool
tenant_has_stopped (const struct tenant *tenant)
{
  return tenant->claim.wants && !tenant->busy
         && tenant->signals.work_begun != tenant->granted_begun;
}

void
tenant_write_word (struct tenant *tenant, uint32_t state, uint64_t until_ns)
{
  if (state == VCUDA_TURN_WAIT)
    tenant->lies_ns -= tenant->lies_ns < EXCUSED_LIES_NS ? tenant->lies_ns : EXCUSED_LIES_NS;
  else if (state != VCUDA_TURN_NONE)
    container_put_u64 (tenant->container, tenant->gpu, FIELD (turn_until_ns), until_ns);
  tenant->word = ((tenant->word | VCUDA_TURN_STATE) + 1) | state;
  container_put_u32 (tenant->container, tenant->gpu, FIELD (turn), tenant->word);
  /* The shim marks BUSY and then reads the word; the keeper reads the marks after this.  */
  __atomic_thread_fence (__ATOMIC_SEQ_CST);
  if (state != VCUDA_TURN_WAIT || !tenant_has_stopped (tenant))
    bells_wake (container_turn_word (tenant->container, tenant->gpu));
}

void
tenant_open (struct tenant *tenant)
{
  tenant->blocks_ns = 0;
  tenant->claim.since_ns = 0;
  tenant_write_word (tenant, VCUDA_TURN_OPEN, (uint64_t) tenant->claim.budget_ns);
  tenant->open_word = tenant->word;
  tenant_publish (tenant);
}

void
tenant_take_over_bucket (struct tenant *tenant, uint64_t alone_ns, uint64_t now)
{
  /* Where no thread took the budget over, the bucket holds something older.  */
  if (tenant->signals.turn_taken != tenant->open_word)
    return;
  int64_t since = (int64_t) (now - tenant->signals.filled_ns);
  queue_take_over (&tenant->claim, tenant->signals.bucket_ns, since, (int64_t) alone_ns);
}

void
tenant_leave (struct tenant *tenant)
{
  tenant_write_word (tenant, VCUDA_TURN_NONE, 0);
  tenant->blocks_ns = tenant->idle_ns = tenant->active_ns = 0;
  tenant->joined = tenant->cut = tenant->bucket_pays = false;
  tenant->read_ns = 0; /* the next reading is a first one */
}

void
tenant_renew_lease (struct tenant *tenant, uint64_t now)
{
  if (tenant->lease_ns > now + LEASE_NS / 2)
    return;
  tenant->lease_ns = now + LEASE_NS;
  container_put_u64 (tenant->container, tenant->gpu, FIELD (turn_lease_ns), tenant->lease_ns);
}

void
tenant_publish (const struct tenant *tenant)
{
  container_put_u64 (tenant->container, tenant->gpu, FIELD (turn_held_ns), tenant->held_ns);
  container_put_u64 (tenant->container, tenant->gpu, FIELD (turn_waited_ns), tenant->waited_ns);
}
