/* The meters of this process, one per context that launched something.  */

#ifndef VCUDA_METERS_H
#define VCUDA_METERS_H

#include <pthread.h>

#include "estimate.h"
#include "intervals.h"
#include "meter.h"

#define VCUDA_RING 128

enum state
{
  FREE = 0,
  OPEN, /* its launch is being made */
  IN_FLIGHT,
};

struct entry
{
  enum state state;
  CUevent start, end;
  const void *function;
  uint64_t estimate_ns;
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
  struct vcuda_estimates estimates;
};

/* The meter of CONTEXT; with MAKE a new one for GPU where there is none. NULL: none, or no room. */
struct meter *vcuda_meter_of (CUcontext context, int gpu, bool make);

bool vcuda_meters_exist (void);

#endif
