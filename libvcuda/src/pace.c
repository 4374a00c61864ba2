/* Every change is one atomic on the usage page, so a process killed anywhere leaves at worst a few
   nanoseconds unaccounted.  */

#include "pace.h"

#include "clock.h"
#include "pages.h"
#include "slot.h"

#define MILLION 1000000ull
#define SHORTEST_SLEEP_NS 50000ull
/* The rate may change while we sleep: look at it again this often.  */
#define LONGEST_SLEEP_NS 10000000ull
#define SAMPLE_NS 500000000ull

static uint32_t
rate_ppm (int gpu)
{
  return __atomic_load_n (&vcuda_pages.limits->gpu[gpu].rate_ppm, __ATOMIC_RELAXED);
}

bool
vcuda_paced (int gpu)
{
  return gpu >= 0
         && __atomic_load_n (&vcuda_pages.limits->gpu[gpu].core_percent, __ATOMIC_RELAXED) < 100;
}

int64_t
vcuda_balance (int gpu, uint64_t cap_ns)
{
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  uint64_t now = vcuda_now ();
  uint64_t last = __atomic_load_n (&bucket->refilled_ns, __ATOMIC_ACQUIRE);
  /* Whoever moves the time forward adds what came in; nobody else does.  */
  if (now > last
      && __atomic_compare_exchange_n (&bucket->refilled_ns, &last, now, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)
      && last)
    {
      int64_t gain = (int64_t) ((unsigned __int128) (now - last) * rate_ppm (gpu) / MILLION);
      int64_t old = __atomic_load_n (&bucket->balance_ns, __ATOMIC_RELAXED);
      int64_t wanted;
      do
        {
          int64_t most = old > (int64_t) cap_ns ? old : (int64_t) cap_ns;
          wanted = old + gain < most ? old + gain : most;
        }
      while (!__atomic_compare_exchange_n (&bucket->balance_ns, &old, wanted, false,
                                           __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    }
  return __atomic_load_n (&bucket->balance_ns, __ATOMIC_RELAXED);
}

void
vcuda_spend (int gpu, int64_t ns)
{
  __atomic_fetch_sub (&vcuda_pages.usage->gpu[gpu].balance_ns, ns, __ATOMIC_RELAXED);
}

uint64_t
vcuda_time_to_earn (int gpu, uint64_t ns)
{
  uint32_t rate = rate_ppm (gpu);
  if (!rate || ns > LONGEST_SLEEP_NS)
    return LONGEST_SLEEP_NS;
  uint64_t wait = ns * MILLION / rate + 1;
  if (wait < SHORTEST_SLEEP_NS)
    return SHORTEST_SLEEP_NS;
  return wait < LONGEST_SLEEP_NS ? wait : LONGEST_SLEEP_NS;
}

/* Keeps two looks at busy_ns, so that one who asks only once still gets a recent answer.  */
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
vcuda_count_busy (int gpu, uint64_t ns)
{
  struct vcuda_usage_gpu *bucket = &vcuda_pages.usage->gpu[gpu];
  struct vcuda_usage_slot *slot = vcuda_slot ();
  __atomic_fetch_add (&bucket->busy_ns, ns, __ATOMIC_RELAXED);
  if (slot)
    __atomic_fetch_add (&slot->busy_ns[gpu], ns, __ATOMIC_RELAXED);
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
  uint32_t rate = rate_ppm (gpu);
  if (now <= since || busy <= before || !rate)
    return 0;
  double share = (double) (busy - before) / (double) (now - since);
  double percent = share * 100.0 * (double) MILLION / (double) rate + 0.5;
  return percent < 100.0 ? (unsigned) percent : 100;
}
