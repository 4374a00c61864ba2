/* bears SECONDS: calls again and again while the pages are overwritten. Prints how long the
   slowest took in milliseconds, and how many were made. Their results are ignored.  */

#include <nvml.h>
#include <time.h>

#include "common/gpu.h"

static double
now_ms (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (double) now.tv_sec * 1e3 + (double) now.tv_nsec / 1e6;
}

int
main (int argc, char **argv)
{
  if (argc != 2)
    return 2;
  use_gpu (0);
  nvmlDevice_t device;
  nvmlInit_v2 ();
  nvmlDeviceGetHandleByIndex_v2 (0, &device);
  double begin = now_ms (), slowest = 0;
  int calls = 0;
  puts ("ready");
  fflush (stdout);
  for (double before = begin, after; before - begin < atof (argv[1]) * 1e3; before = after)
    {
      CUdeviceptr pointer = 0;
      size_t left, total;
      nvmlMemory_t memory;
      nvmlProcessInfo_t processes[300];
      unsigned count = 300;
      switch (calls++ % 5)
        {
        case 0:
          if (cuMemAlloc (&pointer, 4096) == CUDA_SUCCESS)
            cuMemFree (pointer);
          break;
        case 1:
          cuMemAlloc (&pointer, (size_t) 1 << 62);
          break;
        case 2:
          cuMemGetInfo (&left, &total);
          break;
        case 3:
          nvmlDeviceGetMemoryInfo (device, &memory);
          break;
        default:
          nvmlDeviceGetComputeRunningProcesses_v3 (device, &count, processes);
        }
      after = now_ms ();
      slowest = after - before > slowest ? after - before : slowest;
    }
  printf ("{\"slowest\": %.0f, \"calls\": %d}\n", slowest, calls);
  return 0;
}
