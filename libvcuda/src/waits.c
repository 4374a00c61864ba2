/* Calls that wait for the GPU, and the end of contexts: what has ended is charged.  */

#include "clock.h"
#include "credit.h"
#include "device.h"
#include "meters.h"

/* A wait that is longer, by so much and so many times what was charged, than is known of makes the
   next launches suspect: more of them if it comes again.  */
#define LONG_WAIT_NS 5000000
#define LONG_WAIT_TIMES 4
#define LEAST_SUSPECTS 64
#define MOST_SUSPECTS 4096
#define SUSPICION_ENDS_NS 60000000000ull

static void
reap (CUcontext context)
{
  struct meter *meter = vcuda_meter_of (context, -1, false);
  if (!meter)
    return;
  pthread_mutex_lock (&meter->mutex);
  vcuda_meter_reap (meter);
  pthread_mutex_unlock (&meter->mutex);
}

/* Its destruction waits for the context's work anyway; then it is charged as well.  */
void
vcuda_meter_settle (CUcontext context)
{
  if (!vcuda_meter_of (context, -1, false))
    return;
  bool entered = vcuda_enter_context (context);
  real.cuCtxSynchronize ();
  reap (context);
  vcuda_leave_context (entered);
  vcuda_credit_count ();
}

uint64_t
vcuda_wait_begin (void)
{
  return vcuda_credit.joined ? vcuda_now () : 0;
}

static void
suspect (struct vcuda_credit *credit, uint64_t now)
{
  bool again = credit->suspects && now - credit->suspected_ns < SUSPICION_ENDS_NS;
  unsigned suspects = again ? credit->suspects * 2u : LEAST_SUSPECTS;
  credit->suspects = (uint16_t) (suspects < MOST_SUSPECTS ? suspects : MOST_SUSPECTS);
  credit->suspected_ns = now;
  credit->measure = credit->suspects;
  credit->context = VCUDA_NO_CONTEXT;
}

/* Much has ended now: charging it at once keeps the statistics fresh. A wait that took far longer
   than what was charged hints at a kernel that was not what it was taken for.  */
void
vcuda_wait_end (uint64_t began)
{
  struct vcuda_credit *credit = &vcuda_credit;
  CUcontext context;
  int gpu;
  uint64_t now = began ? vcuda_now () : 0;
  int64_t charged = credit->waited - credit->ns;
  bool unseen = credit->sampled > credit->ns;
  if (unseen && (int64_t) (now - began) > LONG_WAIT_NS + LONG_WAIT_TIMES * charged)
    suspect (credit, now);
  credit->waited = credit->ns;
  vcuda_credit_count ();
  if (vcuda_meters_exist () && vcuda_gpu_current (&gpu, &context) == CUDA_SUCCESS)
    reap (context);
}
