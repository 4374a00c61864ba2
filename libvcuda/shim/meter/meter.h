/* The launches of one context that are measured.  */

#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "meter/intervals.h"
#include "real.h"

#define VCUDA_RING 128

enum state
{
  FREE = 0,
  OPEN, /* its launch is under way */
  IN_FLIGHT,
};

/* One measured launch. A sampled one stands for the launches before it too: SAMPLED_NS is the
   expected cost of those since the last sample, WEIGHT how many launches of this cost there are to
   one sample. WEIGHT is 1 and SAMPLED_NS 0 for a function of which each launch is measured.  */
struct entry
{
  enum state state;
  CUevent start, end;
  const void *function;
  uint64_t estimate_ns; /* charged for this launch */
  double weight;
  int64_t sampled_ns;
  int64_t uncounted_ns; /* of those, not counted as busy time yet */
  int64_t not_own_ns;   /* of the time between its events: what other threads may have launched, or
                           the GPU idle before this launch */
  int64_t unsure_ns; /* of the rest: the thread may have been kept off its CPU for as long, and the
                        GPU idle */
  bool linked;       /* the GPU was never idle since the entry before was made */
  bool in_turn;      /* the keeper's queue pays for it, not the bucket */
  bool begins_turn;  /* the first one in a turn that is measured */
  bool overlaps;     /* launches of other streams or threads run beside it */
  uint32_t suspensions; /* of the container when it was made: one in between spoils the time */
};

struct meter
{
  CUcontext context;
  int gpu;
  pthread_mutex_t mutex;
  struct entry ring[VCUDA_RING]; /* its events are created once and used again */
  unsigned head, count;
  uint64_t in_flight_ns;
  bool unbroken;      /* no thread has seen the queue empty since the last entry was made */
  uint32_t turn_word; /* of the entry that was made last */
  uint32_t breaks;    /* how often the first entry after that was made */
  CUevent fence;      /* behind the last launch, while the queue drains */
  CUevent anchor;     /* an event at a known time in COVERED */
  double anchor_ms;
  struct vcuda_intervals covered; /* milliseconds since the first anchor */
  uint32_t suspensions;           /* of the entry that was added to COVERED last */
};

/* All that follow are called with the meter's lock held.

   A place in the ring, with events in STREAM's context, which is current; NULL: none is free.
   MAY_LINK: its stream waits for nothing but GPU work. OVERLAPS: other streams or threads launch.
 */
struct entry *vcuda_meter_open (struct meter *meter, CUstream stream, bool may_link, bool overlaps);

/* Frees the entry that was opened last.  */
void vcuda_meter_abandon (struct meter *meter, struct entry *entry);

/* Charges what has ended. Ends are found in the order of launches within a stream; of several
   streams the first few are checked.  */
void vcuda_meter_reap (struct meter *meter);
