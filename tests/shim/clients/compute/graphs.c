/* graphs SECONDS AHEAD: launches a graph of 100 kernels of 50 us, captured from a stream, AHEAD
   launches ahead (0: waits for each), and prints the share of the GPU's time that it had from the
   end of the first launch to that of the last, and the time that it had in all.  */

#include <time.h>

#include "common/gpu.h"

#define KERNELS 100
#define MOST_AHEAD 16

static const char image[] = ".version 7.0\n.target sm_50\n.address_size 64\n"
                            "//softgpu entry=spin time_ns=param:0\n"
                            ".visible .entry spin(.param .u64 nanoseconds)\n{\n ret;\n}\n";

static double
now (void)
{
  struct timespec moment;
  clock_gettime (CLOCK_MONOTONIC, &moment);
  return (double) moment.tv_sec + (double) moment.tv_nsec / 1e9;
}

int
main (int argc, char **argv)
{
  CUmodule module;
  CUfunction spin;
  CUgraph graph;
  CUgraphExec exec;
  CUstream stream;
  CUevent event[MOST_AHEAD];
  if (argc != 3)
    return 2;
  double seconds = atof (argv[1]);
  unsigned ahead = (unsigned) atoi (argv[2]);
  use_gpu (0);
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&spin, module, "spin"));
  MUST (cuStreamCreate (&stream, CU_STREAM_NON_BLOCKING));
  for (unsigned i = 0; i < ahead; i++)
    MUST (cuEventCreate (&event[i], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
  uint64_t ns = 50000;
  void *parameters[] = { &ns };
  /* Known by the time of the capture, so most of it is paid by estimate, and refunded.  */
  for (int i = 0; i < 20; i++)
    {
      MUST (cuLaunchKernel (spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
      MUST (cuStreamSynchronize (stream));
    }
  MUST (cuStreamBeginCapture (stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < KERNELS; i++)
    MUST (cuLaunchKernel (spin, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
  MUST (cuStreamEndCapture (stream, &graph));
  MUST (cuGraphInstantiate (&exec, graph, 0));
  unsigned launched = 0, first = 0, done = 0;
  double begin = now (), end = begin + seconds, moment = begin;
  for (; moment < end; moment = now ())
    {
      if (done && !first)
        {
          first = done;
          begin = moment;
        }
      MUST (cuGraphLaunch (exec, stream));
      launched++;
      if (!ahead)
        {
          MUST (cuStreamSynchronize (stream));
          done = launched;
          continue;
        }
      MUST (cuEventRecord (event[(launched - 1) % ahead], stream));
      if (launched >= ahead)
        {
          MUST (cuEventSynchronize (event[launched % ahead]));
          done = launched - ahead + 1;
        }
    }
  double wall = moment - begin;
  MUST (cuCtxSynchronize ());
  double graph_s = KERNELS * 50e-6;
  printf ("{\"share\": %.5f, \"gpu_seconds\": %.5f}\n", (done - first) * graph_s / wall,
          launched * graph_s);
  return 0;
}
