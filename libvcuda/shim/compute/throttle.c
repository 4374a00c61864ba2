/* Waits for GPU time. A waiting thread sleeps; it never spins.  */

#include "compute/throttle.h"

#include "compute/turn.h"
#include "gpu_time/credit.h"
#include "gpu_time/line.h"
#include "gpu_time/time_bucket.h"
#include "pages/pages.h"
#include "thread/clock.h"
#include "thread/in_driver.h"

/* A kernel may wait for one that is launched later: never hold a launch back for longer.  */
#define PATIENCE_NS 200000000ull
#define SHORTEST_PAUSE_NS 50000ull
#define LONGEST_PAUSE_NS 500000ull
#define CAP_NS 10000000ull
#define LONGEST_CAP_NS 1000000000ull

/* Without a bound an asynchronous program queues seconds of work before the first end is found. One
   launch may always stand behind the one that runs.  */
static bool
is_crowded (const struct meter *meter)
{
  return meter->count == VCUDA_RING
         || (meter->count > 1 && meter->in_flight_ns > vcuda_turn_most_in_flight (meter->gpu));
}

static uint64_t
longer (uint64_t pause)
{
  return pause < CAP_NS ? 2 * pause : pause;
}

/* LEAST: work may take longer than was thought.  */
static uint64_t
time_until_room (const struct meter *meter, uint64_t least)
{
  uint64_t most = vcuda_turn_most_in_flight (meter->gpu);
  uint64_t wait = meter->in_flight_ns > most ? meter->in_flight_ns - most : 0;
  wait = wait > least ? wait : least;
  return wait < LONGEST_PAUSE_NS ? wait : LONGEST_PAUSE_NS;
}

/* Another thread may have found the queue empty meanwhile. False: the mark is new, and the keeper
   has given the turn on. A wait takes the meter's lock under the turn's: it is left for that.  */
static bool
is_marked_still (struct meter *meter, CUstream stream)
{
  vcuda_unlock (&meter->mutex);
  uint64_t now = vcuda_now ();
  bool marked
      = vcuda_turn_mark_busy (meter->gpu, stream, now) || vcuda_turn_allows (meter->gpu, 0, now);
  vcuda_lock (&meter->mutex);
  return marked;
}

/* What the others see in the bucket while this thread sleeps.  */
static int64_t
own_credit (void)
{
  int64_t credit = vcuda_thread ()->credit.ns;
  return credit > 0 ? credit : 0;
}

void
vcuda_wait_for_share (struct meter *meter, CUstream stream, uint64_t estimate)
{
  int gpu = meter->gpu;
  uint64_t cap = CAP_NS + 2 * estimate;
  if (cap > LONGEST_CAP_NS)
    cap = LONGEST_CAP_NS;
  uint64_t began = 0, soon = LONGEST_PAUSE_NS, least = SHORTEST_PAUSE_NS;
  int64_t enough = 1;
  unsigned count = 0;
  for (;;)
    {
      vcuda_meter_reap (meter);
      uint64_t now = vcuda_now ();
      if (!vcuda_turn_allows (gpu, meter->in_flight_ns, now))
        {
          vcuda_line_leave (gpu, began);
          vcuda_unlock (&meter->mutex);
          vcuda_credit_in_turn (gpu, true);
          vcuda_turn_wait (meter, stream, true);
          vcuda_lock (&meter->mutex);
          continue;
        }
      bool held = vcuda_turn_is_held (gpu, now);
      vcuda_credit_in_turn (gpu, held);
      if (!vcuda_paced (gpu) && !held)
        break;
      int64_t balance = held ? enough : vcuda_balance (gpu, cap) + (began ? own_credit () : 0);
      bool crowded = is_crowded (meter);
      bool first = held || vcuda_line_is_first (gpu, began, now);
      bool pays = held;
      if (first && !held)
        pays = vcuda_line_passes (gpu, balance >= enough, began, now, estimate);
      if (pays && (!crowded || (began && now - began > PATIENCE_NS)))
        {
          if (!began || is_marked_still (meter, stream))
            break;
          continue;
        }
      if (!began)
        began = now;
      if (pays)
        vcuda_line_leave (gpu, began);
      else if (first)
        {
          vcuda_line_join (gpu, began, now, estimate);
          enough = (int64_t) vcuda_line_enough (gpu, now);
        }
      uint64_t pause;
      if (balance < enough)
        {
          enough = enough > (int64_t) VCUDA_PORTION_NS ? enough : (int64_t) VCUDA_PORTION_NS;
          pause = vcuda_time_to_earn (gpu, (uint64_t) enough - (uint64_t) balance);
          __atomic_store_n (&meter->unbroken, false, __ATOMIC_RELAXED);
          /* What is in flight may cost less than was charged for it: poll soon, and soon again
             while launches end.  */
          if (meter->count && pause > soon)
            pause = soon;
          soon = meter->count == count ? longer (soon) : LONGEST_PAUSE_NS;
          count = meter->count;
        }
      else
        {
          pause = time_until_room (meter, least);
          least = longer (least);
        }
      vcuda_unlock (&meter->mutex);
      /* Back in the bucket, since the keeper may take it over meanwhile.  */
      int64_t credit = own_credit ();
      vcuda_charge_time (gpu, -credit);
      vcuda_turn_sleep (gpu, pause);
      vcuda_charge_time (gpu, credit);
      vcuda_lock (&meter->mutex);
      /* Updated at each pause: the host sees from it which containers want more than they have.  */
      __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].throttled_ns, vcuda_now () - now,
                          __ATOMIC_RELAXED);
    }
  vcuda_line_leave (gpu, began);
}
