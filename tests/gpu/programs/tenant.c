/* tenant SHAPE STEPS SECONDS BLOCKS WAIT_FILE: keeps one GPU busy with kernels of so many
   steps of work on BLOCKS blocks each, once WAIT_FILE is there ("-": at once).

   async    launched up to 64 ahead
   copies   the same, with a copy of 16 KiB from the host beside each, on another stream
   sync     each is waited for
   gap      the same, and the host sleeps for 20 us then
   graph    a hundred to a graph, each graph waited for
   graphs   the same, two graphs ahead
   events   each between two events, and waited for

   Prints a line of JSON when it is ready, and one at its end: steps done, the seconds that it took,
   how long the host slept, and for `events` the mean interval of an event pair in milliseconds.
   They begin after a quarter of SECONDS or a second. `progress` is of the whole: the time of the
   monotonic clock, kernels that have ended, and how long the host has slept, every 20 ms or so.  */

#include "work.h"

#define GAP_SECONDS 20e-6
#define PROGRESS_SECONDS 0.02

enum
{
  AHEAD = 64,
  GRAPHS_AHEAD = 2,
  COPY_BYTES = 16 << 10,
  IN_GRAPH = 100,
  WARM_UP = 3,
};

static double gap_seconds;

/* Waits until fewer than DEPTH submissions are in flight, and tells whether one has ended.  */
static bool
make_room (unsigned depth, CUevent **next)
{
  static CUevent done[AHEAD];
  static uint64_t submitted;
  CUevent *event = *next = &done[submitted % depth];
  if (!*event)
    *event = new_event (CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
  if (submitted++ < depth)
    return false;
  MUST (cuEventSynchronize (*event));
  return true;
}

/* Each does one round and returns how many kernels of it are known to be done.  */

static uint64_t
run_ahead (void)
{
  CUevent *event;
  bool waited = make_room (AHEAD, &event);
  launch ();
  MUST (cuEventRecord (*event, stream));
  return waited;
}

static uint64_t
run_beside_copies (void)
{
  static void *from;
  static CUdeviceptr to;
  static CUstream copies;
  if (!copies)
    {
      MUST (cuStreamCreate (&copies, CU_STREAM_NON_BLOCKING));
      MUST (cuMemAllocHost (&from, COPY_BYTES));
      MUST (cuMemAlloc (&to, COPY_BYTES));
    }
  MUST (cuMemcpyHtoDAsync (to, from, COPY_BYTES, copies));
  return run_ahead ();
}

static uint64_t
run_and_wait (void)
{
  launch ();
  MUST (cuStreamSynchronize (stream));
  return 1;
}

static uint64_t
run_with_gap (void)
{
  run_and_wait ();
  double begin = now ();
  sleep_for (GAP_SECONDS);
  gap_seconds += now () - begin;
  return 1;
}

static void
launch_graph (void)
{
  static CUgraphExec graph;
  if (!graph)
    {
      CUgraph captured;
      MUST (cuStreamBeginCapture (stream, CU_STREAM_CAPTURE_MODE_RELAXED));
      for (int i = 0; i < IN_GRAPH; i++)
        launch ();
      MUST (cuStreamEndCapture (stream, &captured));
      MUST (cuGraphInstantiate (&graph, captured, 0));
    }
  MUST (cuGraphLaunch (graph, stream));
}

static uint64_t
run_graph (void)
{
  launch_graph ();
  MUST (cuStreamSynchronize (stream));
  return IN_GRAPH;
}

static uint64_t
run_graphs_ahead (void)
{
  CUevent *event;
  bool waited = make_room (GRAPHS_AHEAD, &event);
  launch_graph ();
  MUST (cuEventRecord (*event, stream));
  return waited ? IN_GRAPH : 0;
}

static double interval_ms;
static uint64_t intervals;

static uint64_t
run_between_events (void)
{
  static CUevent begin, end;
  float took;
  if (!begin)
    {
      begin = new_event (CU_EVENT_DEFAULT);
      end = new_event (CU_EVENT_DEFAULT);
    }
  MUST (cuEventRecord (begin, stream));
  launch ();
  MUST (cuEventRecord (end, stream));
  MUST (cuEventSynchronize (end));
  MUST (cuEventElapsedTime (&took, begin, end));
  interval_ms += took;
  intervals++;
  return 1;
}

static const struct
{
  const char *name;
  uint64_t (*round) (void);
} shapes[] = {
  { "async", run_ahead },           { "copies", run_beside_copies }, { "sync", run_and_wait },
  { "gap", run_with_gap },          { "graph", run_graph },          { "graphs", run_graphs_ahead },
  { "events", run_between_events },
};

static uint64_t (*shape_named (const char *name)) (void)
{
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    if (strcmp (name, shapes[i].name) == 0)
      return shapes[i].round;
  return NULL;
}

static struct progress
{
  double time, gap;
  uint64_t kernels;
} *progress;
static size_t progress_count;
static uint64_t all_kernels;
static double all_gaps;

static void
note_progress (double time)
{
  static size_t room;
  if (progress_count && time - progress[progress_count - 1].time < PROGRESS_SECONDS)
    return;
  if (progress_count == room)
    {
      room = room ? 2 * room : 1024;
      progress = realloc (progress, room * sizeof *progress);
      if (!progress)
        exit (1);
    }
  progress[progress_count++] = (struct progress){ time, all_gaps + gap_seconds, all_kernels };
}

/* Rounds until so many seconds are over; returns the kernels.  */
static uint64_t
run_for (uint64_t (*round) (void), double seconds, double *wall)
{
  double start = now (), time = start;
  uint64_t before = all_kernels;
  for (*wall = 0; *wall < seconds; *wall = time - start)
    {
      all_kernels += round ();
      time = now ();
      note_progress (time);
    }
  return all_kernels - before;
}

int
main (int argc, char **argv)
{
  uint64_t (*round) (void) = argc == 6 ? shape_named (argv[1]) : NULL;
  steps = round ? strtoull (argv[2], NULL, 10) : 0;
  if (!steps)
    {
      fputs ("usage: tenant SHAPE STEPS SECONDS BLOCKS|0 WAIT_FILE|-\n", stderr);
      return 2;
    }
  prepare (atoi (argv[4]));
  double begin = now ();
  for (int i = 0; i < WARM_UP && now () - begin < 0.05; i++)
    round ();
  MUST (cuStreamSynchronize (stream));
  wait_for (argv[5]);

  double wall, seconds = strtod (argv[3], NULL);
  run_for (round, seconds < 4 ? seconds / 4 : 1, &wall);
  all_gaps = gap_seconds;
  gap_seconds = interval_ms = 0;
  intervals = 0;
  uint64_t kernels = run_for (round, seconds, &wall);
  /* What is in flight now belongs to no window.  */
  MUST (cuStreamSynchronize (stream));
  printf ("{\"steps\": %llu, \"kernels\": %llu, \"seconds\": %.6f, \"gap_seconds\": %.6f, "
          "\"interval_ms\": %.6f, \"progress\": [",
          (unsigned long long) (kernels * steps), (unsigned long long) kernels, wall, gap_seconds,
          intervals ? interval_ms / (double) intervals : 0);
  for (size_t i = 0; i < progress_count; i++)
    printf ("%s[%.6f, %llu, %.6f]", i ? ", " : "", progress[i].time,
            (unsigned long long) progress[i].kernels, progress[i].gap);
  puts ("]}");
  return 0;
}
