/* probe QUESTION STEPS SECONDS START_FILE: asks the GPU how it serves contexts, streams and copies.
   It begins once START_FILE is there ("-": at once), and prints a line of JSON at its end. Kernels
   have STEPS steps of work; times are in microseconds.

   runs     short kernels, ahead, an event behind each: the runs in which the GPU served this
   context. A run is [its kernels, the time from its last kernel's end to the next one's] waits    a
   kernel at a time, each waited for: the longest wait busy     the same without a figure streams
   kernels on one stream, and as many on as many streams: narrow ones, and ones that fill the GPU
   copies   a kernel alone, a copy from the host alone, both at once, and a copy within the GPU
   submits  what a launch takes of the thread  */

#include "work.h"

enum
{
  RING = 512, /* events; half of them in flight */
  MOST_RUNS = 1000,
  MOST_WAITS = 4096,
  STREAMS = 8,
  ROUNDS = 5,
  BATCH = 200,
  WIDE_THREADS = 256,
  COPIES_WITHIN = 16, /* of one takes hardly longer than its submission */
};

static double seconds;

static int
ascending (const void *left, const void *right)
{
  double a = *(const double *) left, b = *(const double *) right;
  return (a > b) - (a < b);
}

static double
median (double *values, size_t count)
{
  qsort (values, count, sizeof *values, ascending);
  return values[count / 2];
}

static double
elapsed_us (CUevent begin, CUevent end)
{
  float milliseconds;
  MUST (cuEventElapsedTime (&milliseconds, begin, end));
  return milliseconds * 1e3;
}

/* A kernel ends within ten times its usual interval, or the GPU has served another context.  */
static void
runs (void)
{
  static CUevent ring[RING];
  static double usual[RING];
  uint64_t begun = 0, ended = 0, kernels = 0, found = 0, after = RING;
  double limit = 0, begin = now ();
  printf ("{\"runs\": [");
  while (now () - begin < seconds && found < MOST_RUNS)
    {
      CUevent *event = &ring[begun % RING];
      if (!*event)
        *event = new_event (CU_EVENT_BLOCKING_SYNC);
      launch ();
      MUST (cuEventRecord (*event, stream));
      if (begun++ < RING / 2)
        continue;
      MUST (cuEventSynchronize (ring[(ended + 1) % RING]));
      double took = elapsed_us (ring[ended % RING], ring[(ended + 1) % RING]);
      ended++;
      if (ended <= after)
        {
          usual[ended - 1] = took;
          limit = ended == after ? 10 * median (usual, after) : 0;
          continue;
        }
      kernels++;
      if (took < limit)
        continue;
      printf ("%s[%llu, %.3f]", found++ ? ", " : "", (unsigned long long) kernels - 1, took);
      kernels = 1;
    }
  MUST (cuStreamSynchronize (stream));
  printf ("], \"kernel_us\": %.3f}\n", limit / 10);
}

static double
wait_for_one (void)
{
  double begin = now ();
  launch ();
  MUST (cuStreamSynchronize (stream));
  return now () - begin;
}

static void
waits (void)
{
  static double took[MOST_WAITS];
  double begin = now ();
  size_t count = 0;
  while (now () - begin < seconds || !count)
    took[count++ % MOST_WAITS] = wait_for_one ();
  printf ("{\"wait_us\": %.3f}\n", median (took, count < MOST_WAITS ? count : MOST_WAITS) * 1e6);
}

static void
pairs (void)
{
  CUevent before = new_event (CU_EVENT_DEFAULT), after = new_event (CU_EVENT_DEFAULT);
  double begin = now (), sum = 0;
  unsigned count = 0;
  for (; now () - begin < seconds; count++)
    {
      MUST (cuEventRecord (before, stream));
      launch ();
      MUST (cuEventRecord (after, stream));
      MUST (cuEventSynchronize (after));
      sum += elapsed_us (before, after);
    }
  printf ("{\"pair_us\": %.3f}\n", sum / count);
}

static double
on_streams (CUstream *on, unsigned count, unsigned blocks_of_each, unsigned threads)
{
  double took[ROUNDS];
  for (int round = 0; round < ROUNDS; round++)
    {
      double begin = now ();
      for (unsigned i = 0; i < STREAMS; i++)
        launch_of (steps, blocks_of_each, threads, on[i % count]);
      MUST (cuCtxSynchronize ());
      took[round] = now () - begin;
    }
  return median (took, ROUNDS) * 1e6;
}

static void
streams (void)
{
  CUstream on[STREAMS];
  int most;
  MUST (cuDeviceGetAttribute (&most, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 0));
  unsigned filling = (unsigned) (multiprocessors * most / WIDE_THREADS);
  for (int i = 0; i < STREAMS; i++)
    MUST (cuStreamCreate (&on[i], CU_STREAM_NON_BLOCKING));
  on_streams (on, STREAMS, 1, BLOCK_THREADS);
  printf ("{\"streams\": %d, \"narrow_us\": [%.3f, %.3f], \"filling_us\": [%.3f, %.3f]}\n", STREAMS,
          on_streams (on, 1, 1, BLOCK_THREADS), on_streams (on, STREAMS, 1, BLOCK_THREADS),
          on_streams (on, 1, filling, WIDE_THREADS),
          on_streams (on, STREAMS, filling, WIDE_THREADS));
}

/* A sixteenth of the GPU's memory, a quarter of what is free, 64 MiB: the least of them.  */
static size_t
copied_bytes (void)
{
  size_t free_bytes, total, bytes = 64 << 20;
  MUST (cuMemGetInfo (&free_bytes, &total));
  bytes = total / 16 < bytes ? total / 16 : bytes;
  return free_bytes / 4 < bytes ? free_bytes / 4 : bytes;
}

static void
copies (void)
{
  size_t bytes = copied_bytes ();
  void *host;
  CUdeviceptr device, other;
  CUstream beside;
  double took[4][ROUNDS];
  MUST (cuMemAllocHost (&host, bytes));
  MUST (cuMemAlloc (&device, bytes));
  MUST (cuMemAlloc (&other, bytes));
  MUST (cuStreamCreate (&beside, CU_STREAM_NON_BLOCKING));
  memset (host, 1, bytes);
  for (int round = 0; round < ROUNDS; round++)
    for (int what = 0; what < 4; what++)
      {
        double begin = now ();
        if (what == 0 || what == 2)
          launch ();
        if (what == 1 || what == 2)
          MUST (cuMemcpyHtoDAsync (device, host, bytes, beside));
        for (int i = 0; what == 3 && i < COPIES_WITHIN; i++)
          MUST (cuMemcpyDtoDAsync (other, device, bytes, beside));
        MUST (cuCtxSynchronize ());
        took[what][round] = now () - begin;
      }
  printf ("{\"bytes\": %zu, \"kernel_us\": %.3f, \"copy_us\": %.3f, \"both_us\": %.3f, "
          "\"within_us\": %.3f}\n",
          bytes, median (took[0], ROUNDS) * 1e6, median (took[1], ROUNDS) * 1e6,
          median (took[2], ROUNDS) * 1e6, median (took[3], ROUNDS) * 1e6 / COPIES_WITHIN);
}

static void
submits (void)
{
  double took[ROUNDS];
  for (int round = 0; round < ROUNDS; round++)
    {
      double begin = now ();
      for (int i = 0; i < BATCH; i++)
        launch ();
      took[round] = (now () - begin) / BATCH;
      MUST (cuCtxSynchronize ());
    }
  printf ("{\"submit_us\": %.3f}\n", median (took, ROUNDS) * 1e6);
}

static const struct
{
  const char *name;
  void (*ask) (void);
} questions[] = {
  { "runs", runs },       { "waits", waits },   { "pairs", pairs },
  { "streams", streams }, { "copies", copies }, { "submits", submits },
};

int
main (int argc, char **argv)
{
  steps = argc == 5 ? strtoull (argv[2], NULL, 10) : 0;
  for (size_t i = 0; steps && i < sizeof questions / sizeof *questions; i++)
    if (strcmp (argv[1], questions[i].name) == 0)
      {
        seconds = strtod (argv[3], NULL);
        prepare (0);
        wait_for_one ();
        wait_for (argv[4]);
        questions[i].ask ();
        return 0;
      }
  fputs ("usage: probe QUESTION STEPS SECONDS START_FILE|-\n", stderr);
  return 2;
}
