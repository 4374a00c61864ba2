/* beside SECONDS WHAT: each round has one kernel of 20 us, and WHAT beside it, in another stream or
   in the same one, that keeps the program waiting for 40 ms and the GPU idle. Prints rounds.
   WHAT: copy, copy-back, function, callback, or either of these with -before for the same stream;
   kernel: a kernel of 40 ms in place of the other, once in 100 rounds, and a small copy.  */

#include <string.h>
#include <time.h>

#include "common/gpu.h"

#define BYTES ((size_t) 40 << 20) /* at 1 GiB a second, 39 ms */

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

static void
work_of_the_host (void *ignored)
{
  (void) ignored;
  nanosleep (&(struct timespec){ .tv_nsec = 40000000 }, NULL);
}

static void
call_back (CUstream stream, CUresult rc, void *data)
{
  (void) stream, (void) rc;
  work_of_the_host (data);
}

int
main (int argc, char **argv)
{
  double seconds = argc > 1 ? atof (argv[1]) : 0;
  const char *what = argc > 2 ? argv[2] : "";
  CUmodule module;
  CUfunction spin;
  CUstream stream[2];
  CUdeviceptr memory;
  void *host;
  use_gpu (0);
  MUST (cuModuleLoadData (&module, image));
  MUST (cuModuleGetFunction (&spin, module, "spin"));
  for (int i = 0; i < 2; i++)
    MUST (cuStreamCreate (&stream[i], CU_STREAM_NON_BLOCKING));
  CUstream beside = stream[strstr (what, "-before") ? 0 : 1];
  MUST (cuMemAlloc (&memory, BYTES));
  MUST (cuMemAllocHost (&host, BYTES));
  int rounds = 0;
  for (double end = now () + seconds; now () < end; rounds++)
    {
      if (!strncmp (what, "copy-back", 9))
        MUST (cuMemcpyDtoHAsync (host, memory, BYTES, beside));
      else if (!strncmp (what, "copy", 4))
        MUST (cuMemcpyHtoDAsync (memory, host, BYTES, beside));
      else if (!strncmp (what, "function", 8))
        MUST (cuLaunchHostFunc (beside, work_of_the_host, NULL));
      else if (!strncmp (what, "callback", 8))
        MUST (cuStreamAddCallback (beside, call_back, NULL, 0));
      else
        MUST (cuMemcpyHtoDAsync (memory, host, 4096, beside));
      uint64_t ns = !strcmp (what, "kernel") && rounds % 100 == 99 ? 40000000 : 20000;
      void *parameters[] = { &ns };
      MUST (cuLaunchKernel (spin, 1, 1, 1, 1, 1, 1, 0, stream[0], parameters, NULL));
      MUST (cuStreamSynchronize (stream[0]));
      MUST (cuStreamSynchronize (stream[1]));
    }
  for (int i = 0; i < 2; i++)
    MUST (cuStreamDestroy (stream[i]));
  printf ("%d\n", rounds);
  return 0;
}
