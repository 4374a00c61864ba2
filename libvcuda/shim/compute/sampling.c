/* Which launches are measured, and which wait.

   A thread's credit is the GPU time until its next sample. Each launch takes the average cost of
   its function, COST, from the credit, and the launch that the credit does not cover is measured.
   So a launch is sampled with the probability COST / VCUDA_SAMPLE_NS. A sample stands for
   VCUDA_SAMPLE_NS / COST launches: what it took beyond COST is charged that many times. In the long
   run the charge equals the time that the launches took, even if COST is wrong. A launch that runs
   nothing (into a capture, or refused by the driver) is a sample that took 0. Long, erratic and new
   functions are measured at each launch.  */

#include "compute/sampling.h"

#include "compute/non_gpu_work.h"
#include "compute/throttle.h"
#include "compute/turn.h"
#include "gpu_time/credit.h"
#include "gpu_time/estimate.h"
#include "gpu_time/time_bucket.h"
#include "meter/meters.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "pages/suspended.h"
#include "thread/clock.h"
#include "thread/current_context.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

#define LONG_WORK_NS 20000000ull
#define SHORT_NS 50000
/* The most that a launch into an empty queue takes of its thread, as far as it is believed.  */
#define MOST_IDLE_NS 10000ll

/* What other threads launched while a thread measured.  */
static int64_t foreign_ns;

static bool
capturing (CUstream stream)
{
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult rc = real.cuStreamIsCapturing (stream, &status);
  return rc == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
         || (rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* A sample into a capture: neither it nor the launches that it stands for ran anything.  */
static void
sample_of_nothing (int gpu, int64_t cost)
{
  int64_t portion = vcuda_credit_portion ();
  vcuda_credit_add (portion);
  vcuda_thread ()->credit.ns -= cost;
  vcuda_charge_time (gpu, portion - VCUDA_SAMPLE_NS);
  vcuda_count_busy (gpu, vcuda_credit_used () - VCUDA_SAMPLE_NS);
  vcuda_thread ()->credit.sampled = vcuda_thread ()->credit.ns;
}

/* Opens the sample that ends the thread's credit, and takes the next portion. The thread waits for
   the portion before its next launch, not now: after a pause the GPU is idle, and the sample would
   take longer than the launches that it stands for.  */
static struct entry *
begin_sample (struct meter *meter, CUstream stream, int64_t cost)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  uint64_t now = vcuda_now ();
  bool gpu_only = !credit->mixed && !vcuda_off_gpu_within (now - 1, now);
  int64_t sampled = credit->sampled - credit->ns, uncounted = vcuda_credit_used ();
  /* The time of a linked sample begins after the last break; what was used before stays as it is.
   */
  bool since_break = credit->breaks == meter->breaks;
  bool alone = __atomic_load_n (&vcuda_credit_threads, __ATOMIC_RELAXED) == 1;
  gpu_only = gpu_only && since_break && alone;
  struct entry *entry
      = vcuda_meter_open (meter, stream, gpu_only, vcuda_turn_overlaps (meter->gpu));
  int64_t portion = vcuda_credit_portion ();
  vcuda_charge_time (meter->gpu, portion);
  vcuda_credit_add (portion);
  credit->ns -= cost;
  credit->sampled = credit->counted = credit->ns;
  credit->mixed = false;
  credit->waits = true;
  credit->context = VCUDA_NO_CONTEXT;
  credit->breaks = meter->breaks;
  if (!entry)
    {
      vcuda_count_busy (meter->gpu, uncounted + cost);
      return NULL;
    }
  entry->weight = (double) VCUDA_SAMPLE_NS / (double) cost;
  entry->sampled_ns = sampled;
  entry->uncounted_ns = uncounted;
  entry->estimate_ns = (uint64_t) cost;
  vcuda_turn_expect (meter->gpu,
                     vcuda_now () + meter->in_flight_ns + (uint64_t) (sampled + cost + portion));
  return entry;
}

/* Opens the entry of a launch that is measured for itself, not as a sample of others.  */
static struct entry *
begin_whole (struct meter *meter, CUstream stream, const void *function)
{
  vcuda_wait_for_share (meter, stream, vcuda_estimate (function));
  /* Read again: other launches may have ended during the wait.  */
  uint64_t estimate = vcuda_estimate (function);
  vcuda_charge_time (meter->gpu, (int64_t) estimate);
  vcuda_thread ()->credit.waited += (int64_t) estimate;
  vcuda_turn_expect (meter->gpu, vcuda_now () + meter->in_flight_ns + estimate);
  /* The host samples some twenty times a second: longer work would look idle in between, so the
     page says until when it runs.  */
  if (estimate >= LONG_WORK_NS)
    __atomic_store_n (&vcuda_pages.usage->gpu[meter->gpu].long_until_ns,
                      vcuda_now () + meter->in_flight_ns + estimate, __ATOMIC_RELAXED);
  struct entry *entry = vcuda_meter_open (meter, stream, false, vcuda_turn_overlaps (meter->gpu));
  /* The GPU's time since a break is counted from here.  */
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  if (credit->breaks != meter->breaks)
    credit->sampled = credit->ns;
  credit->breaks = meter->breaks;
  if (entry)
    entry->estimate_ns = estimate;
  else
    vcuda_count_busy (meter->gpu, (int64_t) estimate);
  return entry;
}

/* Records the start. Other threads may already be in a launch: the first record lets these launches
   pass, so that they come before the second one.  */
static bool
mark_start (struct vcuda_launch *launch)
{
  CUevent start = launch->entry->start;
  launch->contended = __atomic_load_n (&vcuda_credit_threads, __ATOMIC_RELAXED) > 1;
  if (launch->contended)
    {
      __atomic_fetch_add (&vcuda_sampling, 1, __ATOMIC_SEQ_CST);
      real.cuEventRecord (start, launch->stream);
      launch->foreign_ns = __atomic_load_n (&foreign_ns, __ATOMIC_RELAXED);
    }
  return real.cuEventRecord (start, launch->stream) == CUDA_SUCCESS;
}

/* The interval of a short launch into an empty queue is mostly the time that the launch itself
   takes of this thread. Left out where it matters little, or where the interval may be another
   launch's.  */
static void
note_idle (struct vcuda_launch *launch)
{
  if (launch->contended || launch->charged_ns > SHORT_NS || launch->entry->overlaps)
    return;
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  if (real.cuEventQuery (launch->entry->start) == CUDA_SUCCESS)
    launch->idle_ns = vcuda_now ();
  vcuda_own_calls_end (mode);
}

/* No more than the fastest launch took: a thread that is kept off its CPU after its launch delays
   the kernel no longer.  */
static int64_t
idle_time (const struct vcuda_launch *launch)
{
  static int64_t fastest_ns = MOST_IDLE_NS;
  if (!launch->idle_ns)
    return 0;
  int64_t ns = (int64_t) (vcuda_now () - launch->idle_ns);
  int64_t least = __atomic_load_n (&fastest_ns, __ATOMIC_RELAXED);
  if (ns < least)
    __atomic_store_n (&fastest_ns, ns, __ATOMIC_RELAXED);
  return ns < least ? ns : least;
}

/* A thread that launches while another one measures adds its cost.  */
static void
note_foreign_launch (int64_t cost)
{
  if (__atomic_load_n (&vcuda_sampling, __ATOMIC_RELAXED))
    __atomic_fetch_add (&foreign_ns, cost, __ATOMIC_RELAXED);
}

void
vcuda_measure_after_pause (int gpu)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  if (!vcuda_turn_overlaps (gpu))
    return;
  credit->measure = credit->measure ? credit->measure : 1;
  credit->context = VCUDA_NO_CONTEXT; /* the next launch is decided on the slow path */
}

static void
wait_for_portion (int gpu, CUcontext context, CUstream stream)
{
  struct meter *meter = vcuda_meter_of (context, gpu, true);
  if (!meter || capturing (stream))
    {
      vcuda_thread ()->credit.context = VCUDA_NO_CONTEXT;
      return;
    }
  vcuda_lock (&meter->mutex);
  vcuda_wait_for_share (meter, stream, (uint64_t) VCUDA_PORTION_NS);
  vcuda_unlock (&meter->mutex);
  vcuda_thread ()->credit.waits = false;
  vcuda_measure_after_pause (gpu);
}

/* A launch into a capture runs nothing: it does not wait.  */
static void
take_turn (int gpu, CUcontext context, CUstream stream)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  uint64_t now = vcuda_now ();
  bool queued = vcuda_turn_mark_busy (gpu, stream, now);
  credit->skips_turn = false;
  if (!queued && credit->ns > 0)
    vcuda_turn_expect (gpu, now + (uint64_t) credit->ns);
  if (!vcuda_turn_allows (gpu, 0, now))
    {
      struct meter *meter = vcuda_meter_of (context, gpu, true);
      if (!meter || capturing (stream))
        {
          credit->context = VCUDA_NO_CONTEXT;
          return;
        }
      vcuda_credit_in_turn (gpu, true);
      vcuda_turn_wait (meter, stream, queued);
      now = vcuda_now ();
    }
  vcuda_credit_in_turn (gpu, vcuda_turn_is_held (gpu, now));
}

bool
vcuda_launch_begin (struct vcuda_launch *launch, const void *function, CUstream stream)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  CUcontext context;
  if (vcuda_gpu_of_stream (stream, &launch->gpu, &context) != CUDA_SUCCESS || launch->gpu < 0)
    return false;
  vcuda_credit_follow (launch->gpu, stream);
  credit->launches++;
  take_turn (launch->gpu, context, stream);
  if (credit->waits)
    wait_for_portion (launch->gpu, context, stream);
  int64_t cost = vcuda_cost (function);
  if (credit->measure)
    {
      credit->measure--;
      credit->context = VCUDA_NO_CONTEXT; /* the next launch is decided here as well */
      cost = VCUDA_MEASURE;
    }
  if (cost <= credit->ns)
    {
      credit->ns -= cost;
      note_foreign_launch (cost);
      return false;
    }
  bool whole = cost == VCUDA_MEASURE;
  if (capturing (stream))
    {
      if (!whole)
        sample_of_nothing (launch->gpu, cost);
      return false;
    }
  launch->meter = vcuda_meter_of (context, launch->gpu, true);
  if (!launch->meter)
    return false;
  launch->stream = stream;
  bool entered = vcuda_enter_context (context);
  vcuda_lock (&launch->meter->mutex);
  launch->entry = whole ? begin_whole (launch->meter, stream, function)
                        : begin_sample (launch->meter, stream, cost);
  if (launch->entry)
    {
      launch->entry->function = function;
      launch->charged_ns = (int64_t) launch->entry->estimate_ns;
      launch->weight = launch->entry->weight;
      launch->suspensions = launch->entry->suspensions;
      launch->meter->in_flight_ns
          += launch->entry->estimate_ns + (uint64_t) launch->entry->sampled_ns;
    }
  vcuda_unlock (&launch->meter->mutex);
  vcuda_leave_context (entered);
  if (!launch->entry)
    return false;
  note_foreign_launch (launch->charged_ns);
  launch->began_ns = vcuda_now ();
  launch->idle_ns = 0;
  if (!mark_start (launch))
    launch->weight = 0; /* the charge stays */
  else
    note_idle (launch);
  return true;
}

/* Nothing ran: gives back the charge, and that of the launches that the sample stands for.  */
static void
refund (struct vcuda_launch *launch)
{
  int64_t too_much = (int64_t) ((double) launch->charged_ns * launch->weight);
  vcuda_charge_time (launch->gpu, -too_much);
  vcuda_count_busy (launch->gpu, launch->entry->uncounted_ns + launch->charged_ns - too_much);
}

void
vcuda_launch_end (struct vcuda_launch *launch, CUresult rc)
{
  struct meter *meter = launch->meter;
  struct entry *entry = launch->entry;
  int64_t idle_ns = idle_time (launch);
  bool measured = launch->weight > 0 && rc == CUDA_SUCCESS
                  && real.cuEventRecord (entry->end, launch->stream) == CUDA_SUCCESS
                  && !vcuda_was_suspended (launch->suspensions);
  int64_t host_ns = (int64_t) (vcuda_now () - launch->began_ns);
  if (launch->contended)
    __atomic_fetch_sub (&vcuda_sampling, 1, __ATOMIC_SEQ_CST);
  vcuda_lock (&meter->mutex);
  /* Otherwise another thread has destroyed the context meanwhile.  */
  bool still_open = entry->state == OPEN;
  if (still_open && measured)
    {
      entry->not_own_ns = idle_ns;
      entry->unsure_ns = launch->idle_ns ? host_ns - idle_ns : 0;
      if (launch->contended)
        entry->not_own_ns = __atomic_load_n (&foreign_ns, __ATOMIC_RELAXED) - launch->foreign_ns;
      entry->state = IN_FLIGHT;
    }
  else if (still_open)
    {
      if (rc != CUDA_SUCCESS)
        refund (launch);
      else
        vcuda_count_busy (launch->gpu, entry->uncounted_ns + launch->charged_ns);
      meter->in_flight_ns -= entry->estimate_ns + (uint64_t) entry->sampled_ns;
      vcuda_meter_abandon (meter, entry);
    }
  vcuda_unlock (&meter->mutex);
}
