/* The loops of one thread: it submits and waits, submits ahead, or submits when a request is due.
 */

#include "workload/busy.h"

volatile sig_atomic_t interrupted;

void
prepare_loop (struct loop *loop, const struct options *options, CUfunction spin)
{
  *loop = (struct loop){ .options = options };
  prepare_work (&loop->work, options, spin);
  for (unsigned i = 0; i < options->depth; i++)
    must (gpu.eventCreate (&loop->done[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC),
          "cuEventCreate");
  if (!options->every_ms)
    return;
  loop->requests.room = (uint64_t) (options->seconds * 1000 / (double) options->every_ms) + 1;
  loop->requests.seconds
      = must_allocate (loop->requests.room, sizeof (double), "--every-ms", "seconds");
}

static void
submit_and_wait (struct loop *loop)
{
  CUstream stream = submit_work (&loop->work);
  if (loop->options->streams)
    must (gpu.streamSynchronize (stream), "cuStreamSynchronize");
  else
    must (gpu.ctxSynchronize (), "cuCtxSynchronize");
  loop->finished++;
  loop->waits++;
}

/* Waits for the oldest submission when as many as allowed are in flight.  */
static void
submit_ahead (struct loop *loop)
{
  uint64_t depth = loop->options->depth;
  CUstream stream = submit_work (&loop->work);
  uint64_t submitted = loop->work.submitted;
  must (gpu.eventRecord (loop->done[(submitted - 1) % depth], stream), "cuEventRecord");
  if (submitted < depth)
    return;
  must (gpu.eventSynchronize (loop->done[submitted % depth]), "cuEventSynchronize");
  loop->finished = submitted - depth + 1;
  loop->waits++;
}

static double
rest (struct loop *loop, double now)
{
  if (!loop->options->gap_us)
    return now;
  sleep_for ((double) loop->options->gap_us / 1e6);
  double then = seconds_now ();
  loop->gap_s += then - now;
  return then;
}

static void
run_at_once (struct loop *loop)
{
  double now = loop->start;
  while (now < loop->end && !interrupted)
    {
      double began = now;
      uint64_t waits = loop->waits;
      if (loop->options->depth)
        submit_ahead (loop);
      else
        submit_and_wait (loop);
      now = seconds_now ();
      loop->longest_s = now - began > loop->longest_s ? now - began : loop->longest_s;
      if (loop->waits != waits)
        now = rest (loop, now);
    }
}

/* A request that is due while the one before it runs is late from then on.  */
static void
run_requests (struct loop *loop)
{
  double every = (double) loop->options->every_ms / 1000;
  for (uint64_t i = 0; i < loop->requests.room; i++)
    {
      double due = loop->start + (double) i * every;
      if (due >= loop->end || seconds_now () >= loop->end || interrupted)
        break;
      sleep_for (due - seconds_now ());
      submit_and_wait (loop);
      double took = seconds_now () - due;
      loop->requests.seconds[loop->requests.count++] = took;
      loop->longest_s = took > loop->longest_s ? took : loop->longest_s;
    }
}

void
run_loop (struct loop *loop)
{
  loop->end = loop->start + loop->options->seconds;
  if (loop->options->every_ms)
    run_requests (loop);
  else
    run_at_once (loop);
  loop->wall_s = seconds_now () - loop->start;
  /* What is in flight now belongs to no window: it is waited for and not counted.  */
  must (gpu.ctxSynchronize (), "cuCtxSynchronize");
}
