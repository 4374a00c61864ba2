/* The command `notebook`: a program that keeps data on the GPU and works with it now and then.  */

#include "workload/busy.h"

#define PIECE (1ull << 20)

/* What the first eight bytes of piece AT hold.  */
static uint64_t
mark_of (uint64_t at)
{
  return 0x9e3779b97f4a7c15ull * (at + 1);
}

static CUdeviceptr
filled (uint64_t bytes)
{
  CUdeviceptr memory;
  must (gpu.memAlloc (&memory, bytes), "cuMemAlloc");
  for (uint64_t at = 0; at < bytes / PIECE; at++)
    {
      uint64_t mark = mark_of (at);
      must (gpu.memcpyHtoD (memory + at * PIECE, &mark, sizeof mark), "cuMemcpyHtoD");
    }
  return memory;
}

static bool
is_intact (CUdeviceptr memory, uint64_t bytes)
{
  for (uint64_t at = 0; at < bytes / PIECE; at++)
    {
      uint64_t mark = 0;
      must (gpu.memcpyDtoH (&mark, memory + at * PIECE, sizeof mark), "cuMemcpyDtoH");
      if (mark != mark_of (at))
        return false;
    }
  return true;
}

/* One cell: kernels, each waited for, then a check of all pieces. The first call shows how long the
   GPU took to be there.  */
static bool
run_cell (unsigned number, CUfunction spin, const struct options *options, CUdeviceptr memory)
{
  double begin = seconds_now (), launched = 0;
  uint64_t kernel_ns = options->kernel_us * 1000;
  void *arguments[] = { &kernel_ns };
  for (unsigned at = 0; at < options->cell_kernels; at++)
    {
      must (gpu.launchKernel (spin, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
      launched = at ? launched : seconds_now ();
      must (gpu.ctxSynchronize (), "cuCtxSynchronize");
    }
  bool intact = is_intact (memory, options->bytes);
  printf ("{\"cell\": %u, \"first_call_ms\": %.1f, \"ms\": %.1f, \"intact\": %s}\n", number,
          (launched - begin) * 1e3, (seconds_now () - begin) * 1e3, intact ? "true" : "false");
  fflush (stdout);
  return intact;
}

int
keep_notebook (const struct options *options)
{
  use_device (options->ordinal);
  CUfunction spin = load_spin ();
  CUdeviceptr memory = filled (options->bytes);
  double end = seconds_now () + options->seconds;
  bool intact = true;
  for (unsigned cell = 1; intact; cell++)
    {
      intact = run_cell (cell, spin, options, memory);
      double pause = (double) options->every_ms / 1e3;
      if (seconds_now () + pause > end || cell == options->cells)
        break;
      sleep_for (pause);
    }
  return intact ? 0 : 1;
}
