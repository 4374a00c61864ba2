/* The meters of this process, one per context that launched something, and what is measured.  */

#ifndef VCUDA_METERS_H
#define VCUDA_METERS_H

#include <pthread.h>

#include "compute/intervals.h"
#include "compute/meter.h"
#include "thread/in_driver.h"

#define VCUDA_RING 128

enum state
{
  FREE = 0,
  OPEN, /* its launch is being made */
  IN_FLIGHT,
};

/* One measured launch. A sampled one speaks for the launches before it too: SAMPLED_NS is what
   those were taken for since the last sample, WEIGHT how many launches of this cost there is one
   sample of. WEIGHT is 1, SAMPLED_NS 0 for a function of which each launch is measured.  */
struct entry
{
  enum state state;
  CUevent start, end;
  CUstream stream;
  const void *function;
  uint64_t estimate_ns; /* charged for this launch */
  double weight;
  int64_t sampled_ns;
  int64_t uncounted_ns; /* of those, not counted as busy time yet */
  int64_t foreign_ns;   /* what other threads may have launched between its events */
  bool linked;          /* the GPU was never idle since the end of the entry before */
};

struct meter
{
  CUcontext context;
  int gpu;
  pthread_mutex_t mutex;
  struct entry ring[VCUDA_RING]; /* its events are made once and used again */
  unsigned head, count;
  uint64_t in_flight_ns;
  CUevent anchor; /* an event whose time on the line below is known */
  double anchor_ms;
  struct vcuda_intervals covered; /* milliseconds since the first anchor */
};

/* The meter of CONTEXT; with MAKE a new one for GPU where there is none. NULL: none, or no room. */
struct meter *vcuda_meter_of (CUcontext context, int gpu, bool make);

bool vcuda_meters_exist (void);

/* Events belong to their stream's context. True: CONTEXT was made current and must be left.  */
bool vcuda_enter_context (CUcontext context);
void vcuda_leave_context (bool entered);

/* The rest is called with the meter's lock held.  */

/* A place in the ring, with events in STREAM's context, which is current; NULL when there is none.
   MAY_LINK: nobody launched elsewhere since the last sample.  */
struct entry *vcuda_meter_open (struct meter *meter, CUstream stream, bool may_link);

/* Gives the entry that was opened last back.  */
void vcuda_meter_abandon (struct meter *meter, struct entry *entry);

/* Charges what has ended. Ends are seen in the order of launches within a stream; of several
   streams the first few are looked at.  */
void vcuda_meter_reap (struct meter *meter);

/* Who had to wait waits until a whole portion is there: a wake-up per tiny kernel costs more.  */
#define VCUDA_PORTION_NS 1000000ull

/* Sleeps until the container has GPU time in hand, with ESTIMATE_NS more saved up at most twice,
   and little of ours is under way. The lock is let go while asleep.  */
void vcuda_wait_for_share (struct meter *meter, uint64_t estimate_ns);

/* Takes GPU time out of the bucket, if it is paced. NS below 0 gives back.  */
void vcuda_charge_time (int gpu, int64_t ns);

#endif
