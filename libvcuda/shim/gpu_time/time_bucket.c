/* The bucket of GPU time in the usage page. Every change is one atomic operation, so a process that
   is killed at any point leaves at worst a few nanoseconds unaccounted.  */

#include "gpu_time/time_bucket.h"

#include "pages/pages.h"
#include "pages/slot.h"
#include "thread/clock.h"

#define MILLION 1000000ull
#define PPM_PER_PERCENT 10000u
#define SHORTEST_SLEEP_NS 50000ull
/* The rate may change during a sleep: read it again this often.  */
#define LONGEST_SLEEP_NS 10000000ull
#define SAMPLE_NS 500000000ull
#define FAR_AHEAD_NS 1000000000ull
#define MOST_SAVED_NS 1000000000ll

/* A grant that is not renewed ends: without a live arbiter each container gets its reserved rate.
   After `until` the difference wraps, which makes it large.  */
static uint32_t
rate_ppm (int gpu, uint64_t now)
{
  const struct vcuda_limits *limits = vcuda_pages.limits;
  uint64_t until = __atomic_load_n (&limits->rate_until_ns, __ATOMIC_RELAXED);
  uint32_t rate = __atomic_load_n (&limits->gpu[gpu].rate_ppm, __ATOMIC_RELAXED);
  /* Each process has at most the container's part of the GPU. All of them together have the time of
     one.  */
  if (limits->gpu[gpu].mps_percent)
    return (uint32_t) MILLION;
  if (until && until - now > VCUDA_LONGEST_LEASE_NS)
    rate = __atomic_load_n (&limits->gpu[gpu].core_percent, __ATOMIC_RELAXED) * PPM_PER_PERCENT;
  return rate < MILLION ? rate : (uint32_t) MILLION;
}

bool
vcuda_paced (int gpu)
{
  if (gpu < 0)
    return false;
  const struct vcuda_limits_gpu *share = &vcuda_pages.limits->gpu[gpu];
  return __atomic_load_n (&share->core_percent, __ATOMIC_RELAXED) < 100 || share->mps_percent
         || __atomic_load_n (&share->policy, __ATOMIC_RELAXED) != VCUDA_POLICY_FIXED;
}

int64_t
vcuda_balance (int gpu, uint64_t cap_ns)
{
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  uint64_t now = vcuda_now ();
  uint64_t last = __atomic_load_n (&bucket->refilled_ns, __ATOMIC_ACQUIRE);
  /* The thread that moves refilled_ns forward adds the income of that time; others add nothing. A
     program may have overwritten refilled_ns: a value well ahead of now would stop the income.  */
  if ((now > last || last - now > FAR_AHEAD_NS)
      && __atomic_compare_exchange_n (&bucket->refilled_ns, &last, now, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE))
    {
      uint64_t span = now > last ? now - last : 0;
      int64_t gain = (int64_t) ((unsigned __int128) span * rate_ppm (gpu, now) / MILLION);
      /* A new container's first launch does not wait.  */
      if (!last)
        gain = (int64_t) cap_ns / 2;
      int64_t old = __atomic_load_n (&bucket->balance_ns, __ATOMIC_RELAXED);
      int64_t wanted;
      do
        {
          /* A thread that saves for a long kernel may have more than CAP_NS.  */
          int64_t most = old > (int64_t) cap_ns ? old : (int64_t) cap_ns;
          most = most < MOST_SAVED_NS ? most : MOST_SAVED_NS;
          wanted = old > most - gain ? most : old + gain;
        }
      while (!__atomic_compare_exchange_n (&bucket->balance_ns, &old, wanted, false,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    }
  return __atomic_load_n (&bucket->balance_ns, __ATOMIC_RELAXED);
}

void
vcuda_spend (int gpu, int64_t ns)
{
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  int64_t left = __atomic_sub_fetch (&bucket->balance_ns, ns, __ATOMIC_RELAXED);
  if (left >= 0)
    return;
  uint64_t debt = 0 - (uint64_t) left;
  /* If two threads store at once, the lower value may stay: the number is only displayed.  */
  if (debt > __atomic_load_n (&bucket->overrun_ns, __ATOMIC_RELAXED))
    __atomic_store_n (&bucket->overrun_ns, debt, __ATOMIC_RELAXED);
}

void
vcuda_resume_bucket (int gpu, int64_t budget_ns)
{
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  __atomic_store_n (&bucket->balance_ns, budget_ns < MOST_SAVED_NS ? budget_ns : MOST_SAVED_NS,
                    __ATOMIC_RELAXED);
  __atomic_store_n (&bucket->refilled_ns, vcuda_now (), __ATOMIC_RELEASE);
}

uint64_t
vcuda_time_to_earn (int gpu, uint64_t ns)
{
  uint32_t rate = rate_ppm (gpu, vcuda_now ());
  if (!rate || ns > LONGEST_SLEEP_NS)
    return LONGEST_SLEEP_NS;
  uint64_t wait = ns * MILLION / rate + 1;
  if (wait < SHORTEST_SLEEP_NS)
    return SHORTEST_SLEEP_NS;
  return wait < LONGEST_SLEEP_NS ? wait : LONGEST_SLEEP_NS;
}

/* Keeps two samples of busy_ns, so that a caller which asks only once still gets a recent
   figure.  */
static void
sample (struct vcuda_usage_gpu *bucket, uint64_t now)
{
  uint64_t last = __atomic_load_n (&bucket->sample_ns, __ATOMIC_ACQUIRE);
  if (now - last < SAMPLE_NS
      || !__atomic_compare_exchange_n (&bucket->sample_ns, &last, now, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE))
    return;
  uint64_t busy = __atomic_load_n (&bucket->busy_ns, __ATOMIC_RELAXED);
  uint64_t previous = __atomic_exchange_n (&bucket->sample_busy, busy, __ATOMIC_RELAXED);
  __atomic_store_n (&bucket->earlier_busy, previous, __ATOMIC_RELAXED);
  __atomic_store_n (&bucket->earlier_ns, last, __ATOMIC_RELEASE);
}

void
vcuda_count_busy (int gpu, int64_t ns)
{
  /* The counters must not shrink: an excess is subtracted from the next amounts.  */
  static int64_t overdrawn[VCUDA_MAX_GPUS];
  int64_t owed = __atomic_exchange_n (&overdrawn[gpu], 0, __ATOMIC_RELAXED);
  if (ns <= owed)
    {
      __atomic_fetch_add (&overdrawn[gpu], owed - ns, __ATOMIC_RELAXED);
      return;
    }
  uint64_t more = (uint64_t) (ns - owed);
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  struct vcuda_usage_slot *slot = vcuda_slot ();
  __atomic_fetch_add (&bucket->busy_ns, more, __ATOMIC_RELAXED);
  if (slot)
    __atomic_fetch_add (&slot->busy_ns[gpu], more, __ATOMIC_RELAXED);
  sample (bucket, vcuda_now ());
}

unsigned
vcuda_utilisation (int gpu)
{
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  uint64_t now = vcuda_now ();
  sample (bucket, now);
  uint64_t since = __atomic_load_n (&bucket->earlier_ns, __ATOMIC_ACQUIRE);
  uint64_t before = __atomic_load_n (&bucket->earlier_busy, __ATOMIC_RELAXED);
  uint64_t busy = __atomic_load_n (&bucket->busy_ns, __ATOMIC_RELAXED);
  uint32_t rate = rate_ppm (gpu, now);
  if (now <= since || busy <= before || !rate)
    return 0;
  double share = (double) (busy - before) / (double) (now - since);
  double percent = share * 100.0 * (double) MILLION / (double) rate + 0.5;
  return percent < 100.0 ? (unsigned) percent : 100;
}
