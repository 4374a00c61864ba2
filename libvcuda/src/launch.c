/* Every way to start GPU work, and the calls that wait for it.  */

#include "credit.h"
#include "graph_memory.h"
#include "inside.h"
#include "meter.h"
#include "pages.h"

/* Not settled by the thread's credit: may be measured, and may wait.  */
#define SLOWLY(key, launch_stream, call)                                                           \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_launch launch;                                                                  \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      if (vcuda_inside || !vcuda_launch_begin (&launch, key, launch_stream))                       \
        return VCUDA_WITHIN (call);                                                                \
      CUresult rc = VCUDA_WITHIN (call);                                                           \
      vcuda_launch_end (&launch, rc);                                                              \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

#define METER(key, launch_stream, call)                                                            \
  do                                                                                               \
    {                                                                                              \
      if (vcuda_launch_at_once (key, launch_stream))                                               \
        return VCUDA_WITHIN (call);                                                                \
      SLOWLY (key, launch_stream, call);                                                           \
    }                                                                                              \
  while (0)

#define KERNEL_PARAMETERS                                                                          \
  CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,                \
      unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters,   \
      void **extra
#define KERNEL_ARGUMENTS f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra

/* In the _ptsz variants no stream means the thread's own; its handle names it to every function. */
static CUstream
per_thread (CUstream stream)
{
  return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The two that programs launch with jump to the driver, with the caller's arguments where they are;
   so the way that needs a frame is a function of its own.  */
static __attribute__ ((noinline)) CUresult
launch_kernel_slowly (KERNEL_PARAMETERS)
{
  SLOWLY (f, stream, real.cuLaunchKernel (KERNEL_ARGUMENTS));
}

CUresult
vcuda_cuLaunchKernel (KERNEL_PARAMETERS)
{
  if (vcuda_launch_at_once (f, stream))
    return real.cuLaunchKernel (KERNEL_ARGUMENTS);
  return launch_kernel_slowly (KERNEL_ARGUMENTS);
}

static __attribute__ ((noinline)) CUresult
launch_kernel_ptsz_slowly (KERNEL_PARAMETERS)
{
  SLOWLY (f, per_thread (stream), real.cuLaunchKernel_ptsz (KERNEL_ARGUMENTS));
}

CUresult
vcuda_cuLaunchKernel_ptsz (KERNEL_PARAMETERS)
{
  if (vcuda_launch_at_once (f, per_thread (stream)))
    return real.cuLaunchKernel_ptsz (KERNEL_ARGUMENTS);
  return launch_kernel_ptsz_slowly (KERNEL_ARGUMENTS);
}

CUresult
vcuda_cuLaunchKernelEx (const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra)
{
  METER (f, config ? config->hStream : NULL, real.cuLaunchKernelEx (config, f, parameters, extra));
}

CUresult
vcuda_cuLaunchKernelEx_ptsz (const CUlaunchConfig *config, CUfunction f, void **parameters,
                             void **extra)
{
  METER (f, per_thread (config ? config->hStream : NULL),
         real.cuLaunchKernelEx_ptsz (config, f, parameters, extra));
}

CUresult
vcuda_cuLaunchCooperativeKernel (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                 unsigned int bx, unsigned int by, unsigned int bz,
                                 unsigned int shared, CUstream stream, void **parameters)
{
  METER (f, stream,
         real.cuLaunchCooperativeKernel (f, gx, gy, gz, bx, by, bz, shared, stream, parameters));
}

CUresult
vcuda_cuLaunchCooperativeKernel_ptsz (CUfunction f, unsigned int gx, unsigned int gy,
                                      unsigned int gz, unsigned int bx, unsigned int by,
                                      unsigned int bz, unsigned int shared, CUstream stream,
                                      void **parameters)
{
  METER (
      f, per_thread (stream),
      real.cuLaunchCooperativeKernel_ptsz (f, gx, gy, gz, bx, by, bz, shared, stream, parameters));
}

CUresult
vcuda_cuLaunch (CUfunction f)
{
  METER (f, NULL, real.cuLaunch (f));
}

CUresult
vcuda_cuLaunchGrid (CUfunction f, int width, int height)
{
  METER (f, NULL, real.cuLaunchGrid (f, width, height));
}

CUresult
vcuda_cuLaunchGridAsync (CUfunction f, int width, int height, CUstream stream)
{
  METER (f, stream, real.cuLaunchGridAsync (f, width, height, stream));
}

static inline bool
graph_at_once (CUgraphExec graph, CUstream stream)
{
  return !__atomic_load_n (&vcuda_graph_memory_used, __ATOMIC_RELAXED)
         && vcuda_launch_at_once (graph, stream);
}

static __attribute__ ((noinline)) CUresult
launch_graph_slowly (CUgraphExec graph, CUstream stream)
{
  SLOWLY (graph, stream, VCUDA_WITH_GRAPH_MEMORY (graph, real.cuGraphLaunch (graph, stream)));
}

CUresult
vcuda_cuGraphLaunch (CUgraphExec graph, CUstream stream)
{
  if (graph_at_once (graph, stream))
    return real.cuGraphLaunch (graph, stream);
  return launch_graph_slowly (graph, stream);
}

static __attribute__ ((noinline)) CUresult
launch_graph_ptsz_slowly (CUgraphExec graph, CUstream stream)
{
  SLOWLY (graph, per_thread (stream),
          VCUDA_WITH_GRAPH_MEMORY (graph, real.cuGraphLaunch_ptsz (graph, stream)));
}

CUresult
vcuda_cuGraphLaunch_ptsz (CUgraphExec graph, CUstream stream)
{
  if (graph_at_once (graph, per_thread (stream)))
    return real.cuGraphLaunch_ptsz (graph, stream);
  return launch_graph_ptsz_slowly (graph, stream);
}

#define WAIT(call)                                                                                 \
  do                                                                                               \
    {                                                                                              \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      if (vcuda_inside)                                                                            \
        return call;                                                                               \
      uint64_t began = vcuda_wait_begin ();                                                        \
      CUresult rc = VCUDA_WITHIN (call);                                                           \
      vcuda_wait_end (began);                                                                      \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuCtxSynchronize (void)
{
  WAIT (real.cuCtxSynchronize ());
}

CUresult
vcuda_cuStreamSynchronize (CUstream stream)
{
  WAIT (real.cuStreamSynchronize (stream));
}

CUresult
vcuda_cuStreamSynchronize_ptsz (CUstream stream)
{
  WAIT (real.cuStreamSynchronize_ptsz (stream));
}

CUresult
vcuda_cuEventSynchronize (CUevent event)
{
  WAIT (real.cuEventSynchronize (event));
}
