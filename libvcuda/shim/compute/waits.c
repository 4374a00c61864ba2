/* Charges the work that has ended: after calls that wait for the GPU, and before a context ends. */

#include "compute/waits.h"

#include "charge/pools_held.h"
#include "compute/non_gpu_work.h"
#include "compute/sampling.h"
#include "gpu_time/credit.h"
#include "gpu_time/time_bucket.h"
#include "memory/stream_unmaps.h"
#include "meter/meters.h"
#include "pages/device.h"
#include "pages/slot.h"
#include "pages/suspended.h"
#include "thread/clock.h"
#include "thread/current_context.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

/* A wait that is longer than its charged work explains, by this much and this many times the
   charge, makes the next launches suspect. A very long wait is charged itself, and more launches
   are suspect if it happens again.  */
#define LONG_WAIT_NS 1000000
#define VERY_LONG_WAIT_NS 5000000
#define LONG_WAIT_TIMES 4
#define LEAST_SUSPECTS 64
#define MOST_SUSPECTS 4096
#define SUSPICION_ENDS_NS 60000000000ull

/* Charges the measured launches of CONTEXT that have ended. True: none is left.  */
static bool
reap (CUcontext context)
{
  struct meter *meter = vcuda_meter_of (context, -1, false);
  if (!meter)
    return true;
  vcuda_lock (&meter->mutex);
  vcuda_meter_reap (meter);
  bool all = meter->count == 0;
  vcuda_unlock (&meter->mutex);
  return all;
}

/* The destruction of a context waits for its work anyway: wait here, so that it is charged.  */
void
vcuda_meter_settle (CUcontext context)
{
  if (!vcuda_meter_of (context, -1, false))
    return;
  bool entered = vcuda_enter_context (context);
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  real.cuCtxSynchronize ();
  vcuda_own_calls_end (mode);
  reap (context);
  vcuda_leave_context (entered);
  vcuda_credit_count ();
}

uint64_t
vcuda_wait_begin (void)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  if (!credit->joined || credit->gpu < 0)
    return 0;
  credit->suspensions = vcuda_suspensions ();
  vcuda_turn_wait_begin (credit->gpu);
  return vcuda_now ();
}

static void
suspect (struct vcuda_credit *credit, unsigned launches)
{
  if (credit->measure < launches)
    credit->measure = (uint16_t) launches;
  credit->context = VCUDA_NO_CONTEXT;
}

static void
suspect_more (struct vcuda_credit *credit, uint64_t now)
{
  bool again = credit->suspects && now - credit->suspected_ns < SUSPICION_ENDS_NS;
  unsigned suspects = again ? credit->suspects * 2u : LEAST_SUSPECTS;
  credit->suspects = (uint16_t) (suspects < MOST_SUSPECTS ? suspects : MOST_SUSPECTS);
  credit->suspected_ns = now;
  suspect (credit, credit->suspects);
}

static uint64_t
busy_of_process (int gpu)
{
  struct vcuda_usage_slot *slot = gpu >= 0 ? vcuda_slot () : NULL;
  return slot ? __atomic_load_n (&slot->busy_ns[gpu], __ATOMIC_RELAXED) : 0;
}

/* Charges what has ended, which keeps the statistics fresh. A wait that took far longer than the
   charge points to a kernel that was not measured and took longer than expected: so the next
   launches, which may include it again, are measured. Only a very long wait is charged itself,
   because a wait also contains other tenants' turns. Returns whether no measured launch is left. */
static bool
charge_waited (uint64_t began)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  CUcontext context;
  int gpu;
  vcuda_thread ()->current.unclocked = 0; /* time has passed */
  vcuda_pools_waited ();
  vcuda_stream_unmaps_settle ();
  /* A suspended container's wait says nothing of its kernels.  */
  if (vcuda_was_suspended (credit->suspensions))
    began = 0;
  uint64_t now = began ? vcuda_now () : 0;
  int64_t charged = credit->waited - credit->ns;
  bool unseen = credit->sampled > credit->ns;
  int64_t unexpected = unseen ? (int64_t) (now - began) - LONG_WAIT_TIMES * charged : 0;
  /* The part of the wait in which the GPU need not have been busy.  */
  int64_t off_gpu = began ? (int64_t) vcuda_off_gpu_within (began, now) : 0;
  bool very_long = unexpected - off_gpu > VERY_LONG_WAIT_NS;
  if (very_long)
    suspect_more (credit, now);
  else if (unexpected > LONG_WAIT_NS)
    suspect (credit, LEAST_SUSPECTS);
  credit->waited = credit->ns;
  vcuda_credit_count ();
  if (!vcuda_meters_exist () || vcuda_gpu_current (&gpu, &context) != CUDA_SUCCESS)
    return true;
  bool all = reap (context);
  uint64_t busy = busy_of_process (credit->gpu);
  /* BUSY comes from the usage page, which a program may overwrite: the difference may wrap.  */
  int64_t beyond = (int64_t) (now - began - (busy - credit->paid)) - off_gpu;
  if (very_long && all && beyond > 0)
    {
      vcuda_charge_time (credit->gpu, beyond);
      vcuda_count_busy (credit->gpu, (uint64_t) beyond);
      busy += (uint64_t) beyond;
    }
  credit->paid = busy;
  return all;
}

void
vcuda_wait_end (uint64_t began, enum vcuda_waited waited, CUstream stream)
{
  int gpu = vcuda_thread ()->credit.gpu;
  bool reaped = charge_waited (began);
  if (began && vcuda_turn_wait_end (gpu, waited, stream, reaped))
    {
      vcuda_meters_break (gpu);
      vcuda_measure_after_pause (gpu);
    }
}
