/* What a load submits: a kernel or a graph of kernels, and a copy beside it.  */

#include "workload/busy.h"

#include <stddef.h>

#define BLOCK_THREADS 1024

/* Reads the clock until its time is over. The software GPU reads from the comment how long it
   takes; a real driver compiles the rest.  */
static const char spin_ptx[] = ".version 7.0\n"
                               ".target sm_50\n"
                               ".address_size 64\n"
                               "//softgpu entry=vcuda_spin time_ns=param:0\n"
                               ".visible .entry vcuda_spin(.param .u64 nanoseconds)\n"
                               "{\n"
                               "  .reg .u64 %start, %now, %wanted;\n"
                               "  .reg .pred %more;\n"
                               "  ld.param.u64 %wanted, [nanoseconds];\n"
                               "  mov.u64 %start, %globaltimer;\n"
                               "again:\n"
                               "  mov.u64 %now, %globaltimer;\n"
                               "  sub.u64 %now, %now, %start;\n"
                               "  setp.lt.u64 %more, %now, %wanted;\n"
                               "  @%more bra again;\n"
                               "  ret;\n"
                               "}\n";

CUfunction
load_spin (void)
{
  CUmodule module;
  CUfunction function;
  must (gpu.moduleLoadData (&module, spin_ptx), "cuModuleLoadData");
  must (gpu.moduleGetFunction (&function, module, "vcuda_spin"), "cuModuleGetFunction");
  return function;
}

/* All of them are resident at once, so the kernel takes its time once.  */
static unsigned
blocks_that_fill (uint64_t ordinal)
{
  CUdevice device;
  int multiprocessors, threads;
  must (gpu.deviceGet (&device, (int) ordinal), "cuDeviceGet");
  must (gpu.deviceGetAttribute (&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
        "cuDeviceGetAttribute");
  must (
      gpu.deviceGetAttribute (&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device),
      "cuDeviceGetAttribute");
  int blocks = multiprocessors * (threads / BLOCK_THREADS);
  return blocks > 0 ? (unsigned) blocks : 1;
}

static CUstream
new_stream (void)
{
  CUstream stream;
  must (gpu.streamCreate (&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

static void
launch (struct work *work, CUstream stream)
{
  uint64_t kernel_ns = work->first_ns ? work->first_ns : work->kernel_ns;
  work->first_ns = 0;
  void *params[] = { &kernel_ns };
  must (gpu.launchKernel (work->spin, work->blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, params,
                          NULL),
        "cuLaunchKernel");
}

/* Its kernels run one after the other.  */
static CUgraphExec
graph_of (struct work *work, unsigned kernels)
{
  CUgraph graph;
  CUgraphExec executable;
  CUstream stream = new_stream ();
  must (gpu.streamBeginCapture (stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
        "cuStreamBeginCapture");
  for (unsigned i = 0; i < kernels; i++)
    launch (work, stream);
  must (gpu.streamEndCapture (stream, &graph), "cuStreamEndCapture");
  must (gpu.graphInstantiate (&executable, graph, 0), "cuGraphInstantiate");
  return executable;
}

void
prepare_work (struct work *work, const struct options *options, CUfunction spin)
{
  work->spin = spin;
  work->kernel_ns = options->kernel_us * 1000;
  work->first_ns = options->first_us * 1000;
  work->blocks = options->blocks ? (unsigned) options->blocks : blocks_that_fill (options->ordinal);
  work->stream_count = options->streams ? (unsigned) options->streams : 1;
  for (unsigned i = 0; i < options->streams; i++)
    work->stream[i] = new_stream ();
  work->kernels = options->kernels ? (unsigned) options->kernels : 1;
  if (options->kernels)
    work->graph = graph_of (work, work->kernels);
  work->copy_bytes = options->copy_bytes;
  if (!options->copy_bytes)
    return;
  work->copy_stream = new_stream ();
  must (gpu.memAlloc (&work->copy_to, options->copy_bytes), "cuMemAlloc");
  work->copy_from = must_allocate (1, options->copy_bytes, "--copy", "bytes");
}

CUstream
submit_work (struct work *work)
{
  CUstream stream = work->stream[work->submitted++ % work->stream_count];
  if (work->copy_bytes)
    must (gpu.memcpyHtoDAsync (work->copy_to, work->copy_from, work->copy_bytes, work->copy_stream),
          "cuMemcpyHtoDAsync");
  if (work->graph)
    must (gpu.graphLaunch (work->graph, stream), "cuGraphLaunch");
  else
    launch (work, stream);
  return stream;
}
