/* One container on one GPU.  */

#include "tenant/tenant.h"

#include "tenant/bells.h"
#include "tenant/doubt.h"
#include "tenant/ends.h"

#define PPM_PER_PERCENT 10000u
#define MILLION 1000000u
/* How often a page is read: the holder's, that of a queue for which others wait, and both where the
   kernel reports ends.  */
#define HOLDER_CHECK_NS (9 * MS / 2)
#define CHECK_NS (2 * MS)
#define SELDOM_NS (100 * MS)
/* So many turns long its queue ended with the turn, or with a ring.  */
#define STEADY_TURNS 16
/* The kernel reports an end before it drops the locks.  */
#define SETTLING_NS (5 * MS)
#define SETTLING_CHECK_NS (MS / 2)
/* A live holder ends its turn itself; check it this long after, or where it is expected to ring. */
#define LATE_NS (MS / 2)
#define RINGS_LATE_NS (10 * MS)
#define RECENT_NS (5 * MS)
#define LEASE_NS (500 * MS)
/* Each ring counts twice, as a wake-up and as a changed bell: two thousand a second, after a burst
   of forty.  */
#define RING_NS (MS / 4)
#define MOST_RING_DEBT_NS (20 * MS)

static bool
settles (const struct tenant *tenant, uint64_t now)
{
  return tenant->ended_ns && now - tenant->ended_ns < SETTLING_NS;
}

static void
read_ends (struct tenant *tenant, uint64_t now)
{
  uint32_t ends = tenant->ends;
  tenant->reports_ends = ends_read (tenant->container, &tenant->ends);
  if (tenant->ends != ends)
    tenant->ended_ns = now;
}

/* Reads what the host has written of its share. The arbiter's grant counts while it is valid.  */
static void
read_share (struct tenant *tenant, bool first, uint64_t now)
{
  const struct vcuda_limits_gpu *share = tenant->limits;
  uint64_t until = __atomic_load_n (&tenant->container->limits_at->rate_until_ns, __ATOMIC_RELAXED);
  uint32_t reserved = PPM_PER_PERCENT * __atomic_load_n (&share->core_percent, __ATOMIC_RELAXED);
  uint32_t rate = until && until - now > VCUDA_LONGEST_LEASE_NS
                      ? reserved
                      : __atomic_load_n (&share->rate_ppm, __ATOMIC_RELAXED);
  tenant->claim.rate_ppm = rate < MILLION ? rate : MILLION;
  tenant->claim.reserved_ppm = reserved;
  tenant->claim.fixed = __atomic_load_n (&share->policy, __ATOMIC_RELAXED) == VCUDA_POLICY_FIXED;
  tenant->low = __atomic_load_n (&share->latency, __ATOMIC_RELAXED) == VCUDA_LATENCY_LOW;
  uint16_t hidden_ms = __atomic_load_n (&share->hidden_ms, __ATOMIC_RELAXED);
  if (!first)
    tenant->claim.hidden_ns += (uint16_t) (hidden_ms - tenant->hidden_ms) * MS;
  tenant->hidden_ms = hidden_ms;
}

void
tenant_read (struct tenant *tenant, uint64_t now, bool live)
{
  read_ends (tenant, now);
  live |= settles (tenant, now) || (tenant->blocks_ns && !tenant->reports_ends);
  struct signals before = tenant->signals;
  doubt_read (tenant, now, live);
  tenant->rang = tenant->signals.bell != before.bell;
  bool first = !tenant->read_ns;
  uint64_t paid = now - tenant->read_ns;
  tenant->read_ns = now;
  tenant->ring_debt_ns = tenant->ring_debt_ns > paid ? tenant->ring_debt_ns - paid : 0;
  if (tenant->rang)
    tenant_woke (tenant);
  read_share (tenant, first, now);
  if (!tenant->claim.turn_ns)
    tenant->claim.turn_ns = TURN_NS;
  if (first || tenant->resumed)
    {
      queue_start (&tenant->claim);
      tenant->urgent_ns = TURN_NS;
    }
  tenant->claim.wants = tenant->signals.marks & VCUDA_TURN_WANTS;
  tenant->busy = !tenant->suspended && doubt_is_busy (tenant, now);
  if (!tenant->busy)
    tenant->blocks_ns = 0;
  /* A launch that waited for the end of the suspension goes on without a turn.  */
  if ((tenant->word & VCUDA_TURN_STATE) != VCUDA_TURN_WAIT || tenant->resumed)
    tenant->may_hold_work = true;
  else if (!tenant->busy
           && (now < tenant->distrusted_until_ns || !(tenant->signals.marks & VCUDA_TURN_BUSY)))
    tenant->may_hold_work = false; /* not if only the estimated end has passed */
  bool began = tenant->signals.work_begun != before.work_begun;
  /* Also where it is not believed: a kernel of another may hold up its queue.  */
  if (tenant->busy || tenant->signals.marks & (VCUDA_TURN_BUSY | VCUDA_TURN_WANTS) || began)
    tenant->active_ns = now;
  if (tenant->busy || tenant->claim.wants || began || !tenant->idle_ns)
    tenant->idle_ns = tenant->busy || tenant->claim.wants ? 0 : now;
}

uint64_t
tenant_recent_until (const struct tenant *tenant)
{
  return tenant->active_ns && !tenant->suspended ? tenant->active_ns + RECENT_NS : 0;
}

bool
tenant_is_recent (const struct tenant *tenant, uint64_t now)
{
  return now < tenant_recent_until (tenant);
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

/* How long from now its page need not be read, where it does not ring.  */
static uint64_t
longest_check_ns (const struct tenant *tenant, uint64_t now, uint64_t unreported_ns)
{
  if (settles (tenant, now))
    return SETTLING_CHECK_NS;
  return tenant->reports_ends && now >= tenant->distrusted_until_ns ? SELDOM_NS : unreported_ns;
}

uint64_t
tenant_late_ns (const struct tenant *tenant, uint64_t now, uint64_t until_ns)
{
  uint64_t check = now + HOLDER_CHECK_NS;
  if (tenant->steady >= STEADY_TURNS)
    check = now + longest_check_ns (tenant, now, HOLDER_CHECK_NS);
  /* A thread that waits for the queue rings when its wait ends.  */
  bool rings = tenant->reports_ends && (tenant->rings || tenant->signals.will_clear);
  uint64_t late = until_ns + (rings ? RINGS_LATE_NS : LATE_NS);
  return late > now && late < check ? late : check;
}

uint64_t
tenant_check_ns (const struct tenant *tenant, uint64_t now)
{
  /* Only a launch marks BUSY without work, for a moment.  */
  uint64_t longest = tenant->may_hold_work ? longest_check_ns (tenant, now, CHECK_NS) : CHECK_NS;
  uint64_t ends = tenant->signals.busy_until_ns + ESTIMATE_ERROR_NS + 1;
  if (ends <= now)
    return now + (longest < CHECK_NS ? longest : CHECK_NS);
  return ends < now + longest ? ends : now + longest;
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
    doubt_excuse (tenant);
  else if (state != VCUDA_TURN_NONE)
    __atomic_store_n (&tenant->limits->turn_until_ns, until_ns, __ATOMIC_RELAXED);
  tenant->word = ((tenant->word | VCUDA_TURN_STATE) + 1) | state;
  __atomic_store_n (&tenant->limits->turn, tenant->word, __ATOMIC_RELEASE);
  /* The shim marks BUSY and then reads the word; the keeper reads the marks after this.  */
  __atomic_thread_fence (__ATOMIC_SEQ_CST);
  if (state != VCUDA_TURN_WAIT || !tenant_has_stopped (tenant))
    bells_wake (&tenant->limits->turn);
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
  __atomic_store_n (&tenant->limits->turn_lease_ns, tenant->lease_ns, __ATOMIC_RELAXED);
}

void
tenant_publish (const struct tenant *tenant)
{
  __atomic_store_n (&tenant->limits->turn_held_ns, tenant->held_ns, __ATOMIC_RELAXED);
  __atomic_store_n (&tenant->limits->turn_waited_ns, tenant->waited_ns, __ATOMIC_RELAXED);
}
