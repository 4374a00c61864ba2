/* Measures launches: an event before and one after the launch, on its own stream.

   The time between the two is the launch's GPU time only where nothing else runs meanwhile.
   Launches of one process that overlap, in several streams, are charged as the union of their
   intervals: each moment once. A launch is linked if the GPU was busy from the one measured before
   it until it was made, as far as the shim saw: then the time from the end of the one to the end of
   the other is that of all launches in between. Where streams overlap, the first launch after each
   pause is measured, so that the next sample has something to be linked to. Other processes' time
   slices are kept out by turns (turn.h); where no turn keeper runs, the container is charged for
   them too.  */

#include "meter/meter.h"

#include "gpu_time/estimate.h"
#include "gpu_time/own_turn.h"
#include "gpu_time/time_bucket.h"
#include "pages/suspended.h"
#include "thread/own_calls.h"
#include "thread/thread.h"

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

/* When the last work that is charged ended, in milliseconds as in COVERED; below 0: none is known.
 */
static double
covered_until (const struct meter *meter)
{
  int count = meter->covered.count;
  return count ? meter->covered.end[count - 1] : -1;
}

/* Whether the container was suspended between what is charged and ENTRY.  */
static bool
has_slept (const struct meter *meter, const struct entry *entry)
{
  return meter->suspensions != entry->suspensions;
}

/* Whether the GPU was busy from the end of what is charged to the end of ENTRY: it was linked, and
   the launch before it is charged.  */
static bool
is_linked (struct meter *meter, struct entry *entry)
{
  return entry->linked && entry_before (meter, entry)->state == FREE && covered_until (meter) >= 0
         && !has_slept (meter, entry);
}

/* The GPU time up to the entry's end that is not charged yet, in nanoseconds: of a linked entry
   since the end of the one before, of another since its own start.  */
static CUresult
measure (struct meter *meter, struct entry *entry, bool linked, int64_t *ns)
{
  float took, since = 0;
  bool slept = has_slept (meter, entry), anchored = meter->anchor && !slept;
  CUresult rc = elapsed (&took, entry->start, entry->end);
  if (rc == CUDA_SUCCESS && anchored)
    rc = elapsed (&since, meter->anchor, entry->start);
  if (rc != CUDA_SUCCESS)
    return rc;
  /* After a suspension the time since the anchor says nothing: any later time will do.  */
  double start = slept ? covered_until (meter) + 1 : meter->anchor_ms + (double) since;
  double end = start + (double) took;
  meter->suspensions = entry->suspensions;
  double from = linked && covered_until (meter) < start ? covered_until (meter) : start;
  *ns = (int64_t) (vcuda_intervals_add (&meter->covered, from, end) * 1e6);
  if (!linked)
    *ns = *ns > entry->not_own_ns ? *ns - entry->not_own_ns : 0;
  /* Elapsed times are single precision: the anchor must be near.  */
  if (!anchored || since > NEW_ANCHOR_MS)
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
owed (const struct entry *entry, int64_t took, bool linked)
{
  int64_t beyond = took - (int64_t) entry->estimate_ns;
  if (linked)
    return beyond - entry->sampled_ns;
  /* The time between its events is not only its own, so it says nothing of other launches.  */
  if (entry->linked || entry->overlaps)
    return beyond;
  /* A sample that is further off marks its function as erratic. It may be an accident, so the
     launches that it stands for are charged no more than a nearly erratic function would cost.  */
  int64_t most = VCUDA_ERRATIC_TIMES * VCUDA_SAMPLE_NS;
  double weighted = (double) beyond * entry->weight;
  if (weighted > (double) most)
    return beyond > most ? beyond : most;
  return (int64_t) weighted;
}

/* What one launch of the entry's function took. Streams that overlap take less in all than each of
   their launches: a linked sample's part of the time in which its launches ran is a better guide.
 */
static uint64_t
learnt (const struct entry *entry, int64_t took, bool linked)
{
  if (!linked || entry->weight <= 1)
    return (uint64_t) took;
  double charged = (double) (entry->sampled_ns + (int64_t) entry->estimate_ns);
  return (uint64_t) ((double) entry->estimate_ns * (double) took / charged);
}

static void
settle_entry (struct meter *meter, struct entry *entry)
{
  int64_t charged = entry->uncounted_ns + (int64_t) entry->estimate_ns, took;
  bool linked = is_linked (meter, entry);
  if (measure (meter, entry, linked, &took) == CUDA_SUCCESS)
    {
      int64_t more = owed (entry, took, linked);
      if (vcuda_paced (meter->gpu) && !entry->in_turn)
        vcuda_spend (meter->gpu, more);
      charged += more;
      /* The GPU switches to this process after the first event.  */
      if (entry->begins_turn && entry->weight <= 1)
        vcuda_own_learn_switch (meter->gpu, more > 0 ? (uint64_t) more : 0);
      if (linked || !entry->overlaps || entry->weight <= 1)
        vcuda_estimate_learn (entry->function, learnt (entry, took, linked), entry->unsure_ns,
                              entry->begins_turn);
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

/* Whether the GPU has worked for this process ever since LAST was made.  */
static bool
was_busy (const struct meter *meter, const struct entry *last, CUstream stream, bool overlaps)
{
  if (last->state == IN_FLIGHT && real.cuEventQuery (last->end) == CUDA_ERROR_NOT_READY)
    return true;
  return overlaps && __atomic_load_n (&meter->unbroken, __ATOMIC_RELAXED)
         && real.cuStreamQuery (stream) == CUDA_ERROR_NOT_READY;
}

struct entry *
vcuda_meter_open (struct meter *meter, CUstream stream, bool may_link, bool overlaps)
{
  if (meter->count == VCUDA_RING)
    return NULL;
  struct entry *entry = &meter->ring[(meter->head + meter->count) % VCUDA_RING];
  struct entry *last = entry_before (meter, entry);
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  bool made = make_event (&entry->start) && make_event (&entry->end);
  bool linked = made && may_link && was_busy (meter, last, stream, overlaps);
  vcuda_own_calls_end (mode);
  if (!made)
    return NULL;
  entry->state = OPEN;
  entry->sampled_ns = entry->uncounted_ns = entry->not_own_ns = entry->unsure_ns = 0;
  entry->weight = 1;
  entry->linked = linked;
  entry->overlaps = overlaps;
  entry->suspensions = vcuda_suspensions ();
  entry->in_turn = vcuda_thread ()->credit.in_turn;
  uint32_t word = vcuda_turn_word (meter->gpu);
  entry->begins_turn = entry->in_turn && word != meter->turn_word;
  meter->turn_word = word;
  meter->breaks += !linked;
  __atomic_store_n (&meter->unbroken, true, __ATOMIC_RELAXED);
  meter->count++;
  return entry;
}

void
vcuda_meter_abandon (struct meter *meter, struct entry *entry)
{
  entry->state = FREE;
  drop_free (meter);
}
