/* An event before and one after each launch, on its own stream; their distance is the GPU time.

   A launch is charged with what its function took before, at once, so a flood is limited from its
   first moment; when its end event has passed, the charge is set right. In the long run exactly
   what was measured is paid.

   On hardware that several processes share, the driver time-slices, and the interval of an event
   pair holds the others' slices too: there this charges too much while others run. The agent's
   view from outside corrects the rate for that.  */

#include "clock.h"
#include "device.h"
#include "meters.h"
#include "pace.h"
#include "pages.h"

/* Without a bound an asynchronous program queues seconds of work before the first end is seen.  */
#define MOST_IN_FLIGHT_NS 20000000ull
/* A kernel may wait for one that comes after it; it must not wait for ever.  */
#define PATIENCE_NS 200000000ull
#define CAP_NS 10000000ull
#define LONGEST_CAP_NS 1000000000ull
/* Who had to wait waits until a whole portion is there: a wake-up per tiny kernel costs more.  */
#define PORTION_NS 1000000ull
#define NEW_ANCHOR_MS 200.0

static bool
make_events (struct entry *entry)
{
  const unsigned flags = CU_EVENT_BLOCKING_SYNC;
  if (!entry->start && real.cuEventCreate (&entry->start, flags) != CUDA_SUCCESS)
    entry->start = NULL;
  if (!entry->end && real.cuEventCreate (&entry->end, flags) != CUDA_SUCCESS)
    entry->end = NULL;
  return entry->start && entry->end;
}

static CUresult
elapsed (float *ms, CUevent start, CUevent end)
{
  CUresult rc = real.cuEventElapsedTime_v2 (ms, start, end);
  return rc == CUDA_ERROR_NOT_FOUND ? real.cuEventElapsedTime (ms, start, end) : rc;
}

/* The GPU time between the entry's events that nobody was charged for yet, in nanoseconds.  */
static CUresult
measure (struct meter *meter, struct entry *entry, uint64_t *ns)
{
  float took, since = 0;
  CUresult rc = elapsed (&took, entry->start, entry->end);
  if (rc == CUDA_SUCCESS && meter->anchor)
    rc = elapsed (&since, meter->anchor, entry->start);
  if (rc != CUDA_SUCCESS)
    return rc;
  double start = meter->anchor_ms + (double) since;
  *ns = (uint64_t) (vcuda_intervals_add (&meter->covered, start, start + (double) took) * 1e6);
  /* Elapsed times are single precision: the anchor must be near.  */
  if (!meter->anchor || since > NEW_ANCHOR_MS)
    {
      CUevent old = meter->anchor;
      meter->anchor = entry->start;
      meter->anchor_ms = start;
      entry->start = old; /* made anew when it is NULL */
    }
  return CUDA_SUCCESS;
}

static void
settle_entry (struct meter *meter, struct entry *entry)
{
  uint64_t ns;
  if (measure (meter, entry, &ns) == CUDA_SUCCESS)
    {
      vcuda_spend (meter->gpu, (int64_t) ns - (int64_t) entry->estimate_ns);
      vcuda_count_busy (meter->gpu, ns);
      vcuda_estimate_learn (&meter->estimates, entry->function, ns);
    }
  meter->in_flight_ns -= entry->estimate_ns;
  entry->state = FREE;
}

/* With the meter's lock held. Ends are seen in the order of launches within a stream; of several
   streams the first few are looked at.  */
static void
collect (struct meter *meter)
{
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  /* Another stream of this thread may be capturing, which forbids asking for events otherwise.  */
  bool relaxed = meter->count && real.cuThreadExchangeStreamCaptureMode (&mode) == CUDA_SUCCESS;
  unsigned misses = 0;
  for (unsigned i = 0; i < meter->count && misses < 4; i++)
    {
      struct entry *entry = &meter->ring[(meter->head + i) % VCUDA_RING];
      if (entry->state != IN_FLIGHT)
        continue;
      CUresult rc = real.cuEventQuery (entry->end);
      if (rc == CUDA_ERROR_NOT_READY)
        misses++;
      else
        settle_entry (meter, entry);
    }
  while (meter->count && meter->ring[meter->head].state == FREE)
    {
      meter->head = (meter->head + 1) % VCUDA_RING;
      meter->count--;
    }
  if (relaxed)
    real.cuThreadExchangeStreamCaptureMode (&mode);
}

static bool
capturing (CUstream stream)
{
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult rc = real.cuStreamIsCapturing (stream, &status);
  return rc == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
         || (rc == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Sleeps until the container has GPU time in hand and little of ours is under way. Called with the
   meter's lock held, which is let go while asleep.  */
static void
wait_for_share (struct meter *meter, uint64_t estimate)
{
  uint64_t cap = CAP_NS + 2 * estimate;
  if (cap > LONGEST_CAP_NS)
    cap = LONGEST_CAP_NS;
  uint64_t began = 0;
  int64_t enough = 1;
  for (;;)
    {
      collect (meter);
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
          enough = (int64_t) PORTION_NS;
          pause = vcuda_time_to_earn (meter->gpu, (uint64_t) (enough - balance));
        }
      else
        pause = 500000;
      pthread_mutex_unlock (&meter->mutex);
      vcuda_sleep_ns (pause);
      pthread_mutex_lock (&meter->mutex);
    }
  if (began)
    __atomic_fetch_add (&vcuda_pages.usage->gpu[meter->gpu].throttled_ns, vcuda_now () - began,
                        __ATOMIC_RELAXED);
}

/* A place in the ring with its start event recorded; -1 when that cannot be had.  */
static int
open_entry (struct meter *meter, const void *function, CUstream stream, uint64_t estimate)
{
  if (meter->count == VCUDA_RING)
    return -1;
  unsigned at = (meter->head + meter->count) % VCUDA_RING;
  struct entry *entry = &meter->ring[at];
  if (!make_events (entry) || real.cuEventRecord (entry->start, stream) != CUDA_SUCCESS)
    return -1;
  entry->state = OPEN;
  entry->function = function;
  entry->estimate_ns = estimate;
  meter->count++;
  meter->in_flight_ns += estimate;
  return (int) at;
}

bool
vcuda_launch_begin (struct vcuda_launch *launch, const void *function, CUstream stream)
{
  CUcontext context;
  if (vcuda_gpu_current (&launch->gpu, &context) != CUDA_SUCCESS || launch->gpu < 0)
    return false;
  __atomic_fetch_add (&vcuda_pages.usage->gpu[launch->gpu].launches, 1, __ATOMIC_RELAXED);
  /* A launch into a capture runs nothing; the graph's launch will be charged.  */
  if (!vcuda_paced (launch->gpu) || capturing (stream))
    return false;
  struct meter *meter = vcuda_meter_of (context, launch->gpu, true);
  if (!meter)
    return false;
  launch->meter = meter;
  launch->stream = stream;
  pthread_mutex_lock (&meter->mutex);
  launch->estimate_ns = vcuda_estimate (&meter->estimates, function);
  wait_for_share (meter, launch->estimate_ns);
  /* What was learnt while waiting counts.  */
  launch->estimate_ns = vcuda_estimate (&meter->estimates, function);
  vcuda_spend (launch->gpu, (int64_t) launch->estimate_ns);
  launch->entry = open_entry (meter, function, stream, launch->estimate_ns);
  pthread_mutex_unlock (&meter->mutex);
  return true;
}

void
vcuda_launch_end (struct vcuda_launch *launch, CUresult rc)
{
  struct meter *meter = launch->meter;
  if (rc != CUDA_SUCCESS)
    vcuda_spend (launch->gpu, -(int64_t) launch->estimate_ns);
  if (launch->entry < 0)
    return;
  pthread_mutex_lock (&meter->mutex);
  struct entry *entry = &meter->ring[launch->entry];
  if (rc == CUDA_SUCCESS && real.cuEventRecord (entry->end, launch->stream) == CUDA_SUCCESS)
    entry->state = IN_FLIGHT;
  else
    {
      entry->state = FREE;
      meter->in_flight_ns -= launch->estimate_ns;
    }
  pthread_mutex_unlock (&meter->mutex);
}

void
vcuda_meter_settle (CUcontext context)
{
  struct meter *meter = vcuda_meter_of (context, -1, false);
  if (!meter)
    return;
  pthread_mutex_lock (&meter->mutex);
  collect (meter);
  pthread_mutex_unlock (&meter->mutex);
}

void
vcuda_meter_collect (void)
{
  CUcontext context;
  if (vcuda_meters_exist () && real.cuCtxGetCurrent (&context) == CUDA_SUCCESS)
    vcuda_meter_settle (context);
}
