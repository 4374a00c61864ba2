/* launches SECONDS THREADS STREAMS AHEAD PATTERN SHORT_US LONG_US EVERY [BLOCKS]: each thread
   launches one function with its time as parameter, AHEAD launches ahead (0: waits for each),
   round STREAMS streams. PATTERN: periodic, every EVERYth is long; random, one in EVERY on average;
   burst, EVERY long ones follow EVERY short ones. Prints the share of the GPU's time that was had
   from the end of the first launch to that of the last, and the time that was had in all.  */

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "common/gpu.h"

#define MOST_AHEAD 256
#define MOST_THREADS 8
#define MOST_STREAMS 8

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            "//softgpu entry=spin time_ns=param:0\n"
                            ".visible .entry spin(.param .u64 nanoseconds)\n{\n ret;\n}\n";

static double seconds;
static int streams, ahead, every;
static unsigned blocks;
static const char *pattern;
static uint64_t short_ns, long_ns;
static CUcontext context;
static CUfunction spin;

static double
now (void)
{
  struct timespec moment;
  clock_gettime (CLOCK_MONOTONIC, &moment);
  return (double) moment.tv_sec + (double) moment.tv_nsec / 1e9;
}

static uint64_t
length_of (unsigned number, unsigned *seed)
{
  if (!strcmp (pattern, "random"))
    return rand_r (seed) % every == 0 ? long_ns : short_ns;
  if (!strcmp (pattern, "burst"))
    return number / (unsigned) every % 2 ? long_ns : short_ns;
  return number % (unsigned) every == 0 ? long_ns : short_ns;
}

struct worker
{
  pthread_t thread;
  unsigned seed;
  uint64_t first_ns, done_ns;
  double wall;
};

static void *
work (void *argument)
{
  struct worker *worker = argument;
  CUstream stream[MOST_STREAMS] = { NULL };
  CUevent event[MOST_AHEAD];
  uint64_t length[MOST_AHEAD];
  MUST (cuCtxSetCurrent (context));
  for (int i = 0; i < streams; i++)
    MUST (cuStreamCreate (&stream[i], CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < ahead; i++)
    MUST (cuEventCreate (&event[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  double begin = now (), end = begin + seconds, moment = begin;
  for (unsigned number = 0; moment < end; number++, moment = now ())
    {
      /* Half a kernel at each end of the window would be a point or two.  */
      if (worker->done_ns && !worker->first_ns)
        {
          worker->first_ns = worker->done_ns;
          begin = moment;
        }
      uint64_t ns = length_of (number, &worker->seed);
      void *parameters[] = { &ns };
      CUstream here = streams ? stream[number % (unsigned) streams] : NULL;
      MUST (cuLaunchKernel (spin, blocks, 1, 1, 1, 1, 1, 0, here, parameters, NULL));
      if (!ahead)
        {
          MUST (cuStreamSynchronize (here));
          worker->done_ns += ns;
          continue;
        }
      unsigned at = number % (unsigned) ahead, oldest = (number + 1) % (unsigned) ahead;
      MUST (cuEventRecord (event[at], here));
      length[at] = ns;
      if (number + 1 >= (unsigned) ahead)
        {
          MUST (cuEventSynchronize (event[oldest]));
          worker->done_ns += length[oldest];
        }
    }
  worker->wall = moment - begin;
  MUST (cuCtxSynchronize ());
  for (int i = 0; i < streams; i++)
    MUST (cuStreamDestroy (stream[i]));
  for (int i = 0; i < ahead; i++)
    MUST (cuEventDestroy (event[i]));
  return NULL;
}

int
main (int argc, char **argv)
{
  if (argc != 9 && argc != 10)
    return 2;
  static struct worker worker[MOST_THREADS];
  CUmodule module;
  seconds = atof (argv[1]);
  int threads = atoi (argv[2]);
  streams = atoi (argv[3]);
  ahead = atoi (argv[4]);
  pattern = argv[5];
  short_ns = strtoull (argv[6], NULL, 10) * 1000;
  long_ns = strtoull (argv[7], NULL, 10) * 1000;
  every = atoi (argv[8]);
  blocks = argc == 10 ? (unsigned) atoi (argv[9]) : 1;
  use_gpu (0);
  MUST (cuCtxGetCurrent (&context));
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&spin, module, "spin"));
  double share = 0, gpu_seconds = 0;
  for (int i = 0; i < threads; i++)
    {
      worker[i].seed = (unsigned) i + 1;
      if (pthread_create (&worker[i].thread, NULL, work, &worker[i]))
        return 1;
    }
  for (int i = 0; i < threads; i++)
    {
      pthread_join (worker[i].thread, NULL);
      gpu_seconds += (double) worker[i].done_ns / 1e9;
      share += (double) (worker[i].done_ns - worker[i].first_ns) / 1e9 / worker[i].wall;
    }
  printf ("{\"share\": %.5f, \"gpu_seconds\": %.5f}\n", share, gpu_seconds);
  return 0;
}
