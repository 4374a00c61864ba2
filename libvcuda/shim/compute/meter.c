/* Measures launches: an event before and one after the launch, on its own stream, give its GPU
   time.

   On a real GPU that several processes share, the driver time-slices, and the time between two
   events includes the other processes' time slices. So a container is charged too much while others
   run, and nothing corrects that.  */

#include "compute/meter.h"

#include "compute/estimate.h"
#include "compute/time_bucket.h"
#include "thread/own_calls.h"

#define NEW_ANCHOR_MS 200.0
/* With several streams, the launch that began first may end last.  */
#define MOST_MISSES 4

static bool
make_event (CUevent *event)
{
  if (!*event && real.cuEventCreate (event, CU_EVENT_BLOCKING_SYNC) != CUDA_SUCCESS)
    *event = NULL;
  return *event != NULL;
}

static CUresult
elapsed (float *ms, CUevent start, CUevent end)
{
  CUresult rc = real.cuEventElapsedTime_v2 (ms, start, end);
  return rc == CUDA_ERROR_NOT_FOUND ? real.cuEventElapsedTime (ms, start, end) : rc;
}

static struct entry *
entry_before (struct meter *meter, struct entry *entry)
{
  unsigned at = (unsigned) (entry - meter->ring);
  return &meter->ring[(at + VCUDA_RING - 1) % VCUDA_RING];
}

/* The GPU time between the entry's events that is not charged yet, in nanoseconds.  */
static CUresult
measure (struct meter *meter, struct entry *entry, int64_t *ns)
{
  float took, since = 0;
  CUresult rc = elapsed (&took, entry->start, entry->end);
  if (rc == CUDA_SUCCESS && meter->anchor)
    rc = elapsed (&since, meter->anchor, entry->start);
  if (rc != CUDA_SUCCESS)
    return rc;
  double start = meter->anchor_ms + (double) since;
  *ns = (int64_t) (vcuda_intervals_add (&meter->covered, start, start + (double) took) * 1e6);
  *ns = *ns > entry->foreign_ns ? *ns - entry->foreign_ns : 0;
  /* Elapsed times are single precision: the anchor must be near.  */
  if (!meter->anchor || since > NEW_ANCHOR_MS)
    {
      CUevent old = meter->anchor;
      meter->anchor = entry->start;
      meter->anchor_ms = start;
      entry->start = old; /* created again if it is NULL */
    }
  return CUDA_SUCCESS;
}

/* What the launches that the entry stands for took beyond their charge.  */
static int64_t
owed (const struct entry *entry, int64_t took, float gap)
{
  int64_t beyond = took - (int64_t) entry->estimate_ns;
  if (gap >= 0)
    return (int64_t) ((double) gap * 1e6) - entry->sampled_ns + beyond;
  /* A sample that is further off marks its function as erratic. It may be an accident, so the
     launches that it stands for are charged no more than a nearly erratic function would cost.  */
  int64_t most = VCUDA_ERRATIC_TIMES * VCUDA_SAMPLE_NS;
  double weighted = (double) beyond * entry->weight;
  if (weighted > (double) most)
    return beyond > most ? beyond : most;
  return (int64_t) weighted;
}

static void
settle_entry (struct meter *meter, struct entry *entry)
{
  int64_t charged = entry->uncounted_ns + (int64_t) entry->estimate_ns, took;
  /* The time between a linked sample and the one before it: how long the launches ran that it
     stands for. Read before the start becomes the anchor.  */
  float gap = -1;
  if (entry->linked
      && elapsed (&gap, entry_before (meter, entry)->end, entry->start) != CUDA_SUCCESS)
    gap = -1;
  if (measure (meter, entry, &took) == CUDA_SUCCESS)
    {
      int64_t more = owed (entry, took, gap);
      if (vcuda_paced (meter->gpu))
        vcuda_spend (meter->gpu, more);
      charged += more;
      vcuda_estimate_learn (entry->function, (uint64_t) took);
    }
  vcuda_count_busy (meter->gpu, charged);
  meter->in_flight_ns -= entry->estimate_ns + (uint64_t) entry->sampled_ns;
  entry->state = FREE;
}

static void
drop_free (struct meter *meter)
{
  while (meter->count && meter->ring[meter->head].state == FREE)
    {
      meter->head = (meter->head + 1) % VCUDA_RING;
      meter->count--;
    }
}

void
vcuda_meter_reap (struct meter *meter)
{
  unsigned misses = 0;
  if (!meter->count)
    return;
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  for (unsigned i = 0; i < meter->count && misses < MOST_MISSES; i++)
    {
      struct entry *entry = &meter->ring[(meter->head + i) % VCUDA_RING];
      if (entry->state != IN_FLIGHT)
        continue;
      if (real.cuEventQuery (entry->end) == CUDA_ERROR_NOT_READY)
        misses++;
      else
        settle_entry (meter, entry);
    }
  drop_free (meter);
  vcuda_own_calls_end (mode);
}

struct entry *
vcuda_meter_open (struct meter *meter, CUstream stream, bool may_link)
{
  if (meter->count == VCUDA_RING)
    return NULL;
  struct entry *entry = &meter->ring[(meter->head + meter->count) % VCUDA_RING];
  struct entry *last = entry_before (meter, entry);
  bool may_wait = may_link && meter->count && last->state == IN_FLIGHT && last->weight > 1
                  && last->stream == stream;
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  bool made = make_event (&entry->start) && make_event (&entry->end);
  bool linked = made && may_wait && real.cuEventQuery (last->end) == CUDA_ERROR_NOT_READY;
  vcuda_own_calls_end (mode);
  if (!made)
    return NULL;
  entry->state = OPEN;
  entry->stream = stream;
  entry->sampled_ns = entry->uncounted_ns = entry->foreign_ns = 0;
  entry->weight = 1;
  entry->linked = linked;
  meter->count++;
  return entry;
}

void
vcuda_meter_abandon (struct meter *meter, struct entry *entry)
{
  entry->state = FREE;
  drop_free (meter);
}
