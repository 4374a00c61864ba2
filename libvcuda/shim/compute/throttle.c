/* Waits for GPU time. A waiting thread sleeps; it never spins.  */

#include "compute/throttle.h"

#include "compute/time_bucket.h"
#include "pages/pages.h"
#include "thread/clock.h"
#include "thread/in_driver.h"

/* Without a bound an asynchronous program queues seconds of work before the first end is found.  */
#define MOST_IN_FLIGHT_NS 20000000ull
/* A kernel may wait for one that is launched later: never hold a launch back for longer.  */
#define PATIENCE_NS 200000000ull
#define CAP_NS 10000000ull
#define LONGEST_CAP_NS 1000000000ull

void
vcuda_wait_for_share (struct meter *meter, uint64_t estimate)
{
  uint64_t cap = CAP_NS + 2 * estimate;
  if (cap > LONGEST_CAP_NS)
    cap = LONGEST_CAP_NS;
  uint64_t began = 0;
  int64_t enough = 1;
  for (;;)
    {
      vcuda_meter_reap (meter);
      if (!vcuda_paced (meter->gpu))
        break;
      int64_t balance = vcuda_balance (meter->gpu, cap);
      uint64_t now = vcuda_now ();
      bool crowded = meter->count == VCUDA_RING || meter->in_flight_ns > MOST_IN_FLIGHT_NS;
      if (balance >= enough && (!crowded || (began && now - began > PATIENCE_NS)))
        break;
      if (!began)
        began = now;
      uint64_t pause;
      if (balance < enough)
        {
          enough = (int64_t) VCUDA_PORTION_NS;
          pause = vcuda_time_to_earn (meter->gpu, (uint64_t) enough - (uint64_t) balance);
        }
      else
        pause = 500000;
      vcuda_unlock (&meter->mutex);
      vcuda_sleep_ns (pause);
      vcuda_lock (&meter->mutex);
      /* Updated at each pause: the host sees from it which containers want more than they have.  */
      __atomic_fetch_add (&vcuda_pages.usage->gpu[meter->gpu].throttled_ns, vcuda_now () - now,
                          __ATOMIC_RELAXED);
    }
}

void
vcuda_charge_time (int gpu, int64_t ns)
{
  if (vcuda_paced (gpu))
    vcuda_spend (gpu, ns);
}
