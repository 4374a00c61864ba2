/* Waits until a context's queue is empty, by an event behind the last launch of the stream.
   Launches that other streams hold and that were not measured end within about a millisecond of a
   measured one.  */

#include "meter/drain.h"

#include "thread/clock.h"
#include "thread/current_context.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

/* A kernel may wait for one that is launched later: no launch waits much longer for it.  */
#define PATIENCE_NS 200000000ull
#define SHORTEST_PAUSE_NS 30000ull
#define NEAR_PAUSE_NS 200000ull
#define LONGEST_PAUSE_NS 10000000ull
#define LATEST_PAUSE_NS 1000000ull

static bool
put_fence (struct meter *meter, CUstream stream)
{
  if (!meter->fence
      && real.cuEventCreate (&meter->fence, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING)
             != CUDA_SUCCESS)
    meter->fence = NULL;
  return meter->fence && real.cuEventRecord (meter->fence, stream) == CUDA_SUCCESS;
}

/* With the meter's lock held. METER's context may have ended, and its events with it.  */
static bool
is_done (struct meter *meter, bool fenced)
{
  vcuda_meter_reap (meter);
  if (meter->count)
    return false;
  if (!fenced || !meter->fence)
    return true;
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  bool done = real.cuEventQuery (meter->fence) != CUDA_ERROR_NOT_READY;
  vcuda_own_calls_end (mode);
  return done;
}

/* The work should end in LEFT_NS, and may end earlier.  */
static uint64_t
pause_before (uint64_t left_ns)
{
  if (left_ns < SHORTEST_PAUSE_NS)
    return SHORTEST_PAUSE_NS;
  if (left_ns < 10 * NEAR_PAUSE_NS)
    return left_ns < NEAR_PAUSE_NS ? left_ns : NEAR_PAUSE_NS;
  return left_ns / 2 < LONGEST_PAUSE_NS ? left_ns / 2 : LONGEST_PAUSE_NS;
}

bool
vcuda_drain (struct meter *meter, CUstream stream)
{
  bool entered = vcuda_enter_context (meter->context);
  vcuda_lock (&meter->mutex);
  bool fenced = put_fence (meter, stream), done;
  uint64_t began = vcuda_now (), ends = began + meter->in_flight_ns;
  uint64_t late = SHORTEST_PAUSE_NS;
  uint64_t patience = PATIENCE_NS + 2 * meter->in_flight_ns;
  while (!(done = is_done (meter, fenced)))
    {
      uint64_t now = vcuda_now ();
      if (now - began > patience)
        break;
      uint64_t pause = ends > now ? pause_before (ends - now) : late;
      if (ends <= now && late < LATEST_PAUSE_NS)
        late *= 2;
      vcuda_unlock (&meter->mutex);
      vcuda_sleep_ns (pause);
      vcuda_lock (&meter->mutex);
    }
  vcuda_unlock (&meter->mutex);
  vcuda_leave_context (entered);
  return done;
}
