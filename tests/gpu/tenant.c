/* tenant SHAPE ITERATIONS SECONDS BLOCKS WAIT_FILE: keeps one GPU busy with kernels of so many
   steps of work on BLOCKS blocks each, once WAIT_FILE is there ("-": at once).

   async    launched up to 16 ahead
   sync     each is waited for
   graph    a hundred to a graph, each graph waited for
   events   each between two events, and waited for

   Prints a line of JSON when it is ready, and one at its end: steps done, the seconds that it took,
   and for `events` the mean interval of an event pair in milliseconds. A step is work, not time: a
   kernel that the GPU sets aside for another process takes longer and does no more, whatever a
   clock on the device says.  */

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum
{
  AHEAD = 16,
  IN_GRAPH = 100,
  WARM_UP = 3,
};

/* A chain of multiplications, each waiting for the one before; the store keeps the compiler from
   dropping them. To the software GPU a step is a nanosecond.  */
static const char image[]
    = ".version 7.0\n"
      ".target sm_50\n"
      ".address_size 64\n"
      "//softgpu entry=work time_ns=param:0\n"
      ".visible .global .align 8 .u64 sink;\n"
      ".visible .entry work(.param .u64 steps)\n"
      "{\n"
      "  .reg .u64 %left, %value;\n"
      "  .reg .pred %more, %never;\n"
      "  ld.param.u64 %left, [steps];\n"
      "  mov.u64 %value, %left;\n"
      "again:\n"
      "  mad.lo.u64 %value, %value, 6364136223846793005, 1442695040888963407;\n"
      "  sub.u64 %left, %left, 1;\n"
      "  setp.ne.u64 %more, %left, 0;\n"
      "  @%more bra again;\n"
      "  setp.eq.u64 %never, %value, 0;\n"
      "  @%never st.global.u64 [sink], %value;\n"
      "  ret;\n"
      "}\n";

static CUfunction work;
static CUstream stream;
static uint64_t steps;
static unsigned blocks;

static void
must (CUresult rc, const char *what)
{
  if (rc == CUDA_SUCCESS)
    return;
  const char *name = NULL;
  cuGetErrorName (rc, &name);
  fprintf (stderr, "tenant: %s: %s; run it where a GPU is free\n", what, name ? name : "?");
  exit (1);
}

#define MUST(call) must (call, #call)

static double
now (void)
{
  struct timespec moment;
  clock_gettime (CLOCK_MONOTONIC, &moment);
  return (double) moment.tv_sec + (double) moment.tv_nsec / 1e9;
}

static void
launch (void)
{
  void *params[] = { &steps };
  MUST (cuLaunchKernel (work, blocks, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void
prepare (int device_blocks)
{
  CUdevice device;
  CUcontext context;
  CUmodule module;
  int multiprocessors;
  MUST (cuInit (0));
  MUST (cuDeviceGet (&device, 0));
  MUST (cuDevicePrimaryCtxRetain (&context, device));
  MUST (cuCtxSetCurrent (context));
  MUST (cuDeviceGetAttribute (&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&work, module, "work"));
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  blocks = device_blocks ? (unsigned) device_blocks : (unsigned) multiprocessors;
}

/* Each does one round and returns how many kernels of it are known to be done.  */

static uint64_t
run_ahead (void)
{
  static CUevent done[AHEAD];
  static uint64_t launched;
  CUevent *event = &done[launched % AHEAD];
  if (!*event)
    MUST (cuEventCreate (event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  bool waits = launched++ >= AHEAD;
  if (waits)
    MUST (cuEventSynchronize (*event));
  launch ();
  MUST (cuEventRecord (*event, stream));
  return waits;
}

static uint64_t
run_and_wait (void)
{
  launch ();
  MUST (cuStreamSynchronize (stream));
  return 1;
}

static uint64_t
run_graph (void)
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
  MUST (cuStreamSynchronize (stream));
  return IN_GRAPH;
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
      MUST (cuEventCreate (&begin, CU_EVENT_DEFAULT));
      MUST (cuEventCreate (&end, CU_EVENT_DEFAULT));
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

static uint64_t (*shape_named (const char *name)) (void)
{
  if (strcmp (name, "async") == 0)
    return run_ahead;
  if (strcmp (name, "sync") == 0)
    return run_and_wait;
  if (strcmp (name, "graph") == 0)
    return run_graph;
  return strcmp (name, "events") == 0 ? run_between_events : NULL;
}

int
main (int argc, char **argv)
{
  uint64_t (*round) (void) = argc == 6 ? shape_named (argv[1]) : NULL;
  steps = round ? strtoull (argv[2], NULL, 10) : 0;
  if (!steps)
    {
      fputs ("usage: tenant async|sync|graph|events STEPS SECONDS BLOCKS|0 WAIT_FILE|-\n", stderr);
      return 2;
    }
  prepare (atoi (argv[4]));
  double begin = now ();
  for (int i = 0; i < WARM_UP && now () - begin < 0.05; i++)
    round ();
  MUST (cuStreamSynchronize (stream));
  interval_ms = 0;
  intervals = 0;
  puts ("{\"ready\": true}");
  fflush (stdout);
  while (strcmp (argv[5], "-") != 0 && access (argv[5], F_OK) != 0)
    nanosleep (&(struct timespec){ .tv_nsec = 2000000 }, NULL);

  double start = now (), wall = 0, seconds = strtod (argv[3], NULL);
  uint64_t kernels = 0;
  while (wall < seconds)
    {
      kernels += round ();
      wall = now () - start;
    }
  /* What is in flight now belongs to no window.  */
  MUST (cuStreamSynchronize (stream));
  printf ("{\"steps\": %llu, \"kernels\": %llu, \"seconds\": %.6f, \"interval_ms\": %.6f}\n",
          (unsigned long long) (kernels * steps), (unsigned long long) kernels, wall,
          intervals ? interval_ms / (double) intervals : 0);
  return 0;
}
