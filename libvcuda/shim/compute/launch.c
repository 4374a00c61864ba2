/* Every call that starts GPU work, and those that wait for it.  */

#include "compute/metered_call.h"
#include "compute/non_gpu_work.h"
#include "compute/waits.h"
#include "memory/graph_memory.h"
#include "pages/pass_on.h"
#include "thread/stream.h"

/* The hot paths of cuLaunchKernel and cuGraphLaunch jump to the driver with the caller's arguments
   in place; so the path that needs a stack frame is a function of its own.

   On x86-64 the arguments that the caller left on the stack are one struct here, which is passed in
   the same bytes: as single arguments the compiler would load and store each.  */
#ifdef __x86_64__
struct stacked
{
  uint64_t bz, shared; /* the upper halves mean nothing */
  CUstream stream;
  void **parameters, **extra;
};
#  define STACKED_PARAMETERS struct stacked stacked
#  define STACKED stacked
#  define STREAM stacked.stream
#else
#  define STACKED_PARAMETERS                                                                       \
    unsigned int bz, unsigned int shared, CUstream stream, void **parameters, void **extra
#  define STACKED bz, shared, stream, parameters, extra
#  define STREAM stream
#endif

#define KERNEL_PARAMETERS                                                                          \
  CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,                \
      unsigned int by, STACKED_PARAMETERS
#define KERNEL_ARGUMENTS f, gx, gy, gz, bx, by, STACKED

typedef CUresult launch_kernel_type (KERNEL_PARAMETERS);
_Static_assert (__builtin_types_compatible_p (__typeof__ (cuLaunchKernel),
                                              CUresult (CUfunction, unsigned int, unsigned int,
                                                        unsigned int, unsigned int, unsigned int,
                                                        unsigned int, unsigned int, CUstream,
                                                        void **, void **)),
                "as the structs above have it");
#define REAL(name) ((launch_kernel_type *) (void *) real.name)

launch_kernel_type launch_kernel __asm__ ("vcuda_cuLaunchKernel");
launch_kernel_type launch_kernel_ptsz __asm__ ("vcuda_cuLaunchKernel_ptsz");

static __attribute__ ((noinline)) CUresult
launch_kernel_slow_path (KERNEL_PARAMETERS)
{
  VCUDA_METER (f, STREAM, REAL (cuLaunchKernel) (KERNEL_ARGUMENTS));
}

CUresult
launch_kernel (KERNEL_PARAMETERS)
{
  if (vcuda_launch_at_once (f, STREAM))
    return REAL (cuLaunchKernel) (KERNEL_ARGUMENTS);
  return launch_kernel_slow_path (KERNEL_ARGUMENTS);
}

static __attribute__ ((noinline)) CUresult
launch_kernel_ptsz_slow_path (KERNEL_PARAMETERS)
{
  VCUDA_METER (f, vcuda_per_thread (STREAM), REAL (cuLaunchKernel_ptsz) (KERNEL_ARGUMENTS));
}

CUresult
launch_kernel_ptsz (KERNEL_PARAMETERS)
{
  if (vcuda_launch_at_once (f, vcuda_per_thread (STREAM)))
    return REAL (cuLaunchKernel_ptsz) (KERNEL_ARGUMENTS);
  return launch_kernel_ptsz_slow_path (KERNEL_ARGUMENTS);
}

CUresult
vcuda_cuLaunchKernelEx (const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra)
{
  VCUDA_METER (f, config ? config->hStream : NULL,
               real.cuLaunchKernelEx (config, f, parameters, extra));
}

CUresult
vcuda_cuLaunchKernelEx_ptsz (const CUlaunchConfig *config, CUfunction f, void **parameters,
                             void **extra)
{
  VCUDA_METER (f, vcuda_per_thread (config ? config->hStream : NULL),
               real.cuLaunchKernelEx_ptsz (config, f, parameters, extra));
}

CUresult
vcuda_cuLaunchCooperativeKernel (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                                 unsigned int bx, unsigned int by, unsigned int bz,
                                 unsigned int shared, CUstream stream, void **parameters)
{
  VCUDA_METER (
      f, stream,
      real.cuLaunchCooperativeKernel (f, gx, gy, gz, bx, by, bz, shared, stream, parameters));
}

CUresult
vcuda_cuLaunchCooperativeKernel_ptsz (CUfunction f, unsigned int gx, unsigned int gy,
                                      unsigned int gz, unsigned int bx, unsigned int by,
                                      unsigned int bz, unsigned int shared, CUstream stream,
                                      void **parameters)
{
  VCUDA_METER (
      f, vcuda_per_thread (stream),
      real.cuLaunchCooperativeKernel_ptsz (f, gx, gy, gz, bx, by, bz, shared, stream, parameters));
}

CUresult
vcuda_cuLaunch (CUfunction f)
{
  VCUDA_METER (f, NULL, real.cuLaunch (f));
}

CUresult
vcuda_cuLaunchGrid (CUfunction f, int width, int height)
{
  VCUDA_METER (f, NULL, real.cuLaunchGrid (f, width, height));
}

CUresult
vcuda_cuLaunchGridAsync (CUfunction f, int width, int height, CUstream stream)
{
  VCUDA_METER (f, stream, real.cuLaunchGridAsync (f, width, height, stream));
}

static inline bool
graph_at_once (CUgraphExec graph, CUstream stream)
{
  return !__atomic_load_n (&vcuda_graph_memory_used, __ATOMIC_RELAXED)
         && vcuda_launch_at_once (graph, stream);
}

static __attribute__ ((noinline)) CUresult
launch_graph_slow_path (CUgraphExec graph, CUstream stream)
{
  /* This thread may hold the lock on the books of memory.  */
  if (vcuda_thread ()->in_driver)
    return real.cuGraphLaunch (graph, stream);
  VCUDA_METER (graph, stream, VCUDA_WITH_GRAPH_MEMORY (graph, real.cuGraphLaunch (graph, stream)));
}

CUresult
vcuda_cuGraphLaunch (CUgraphExec graph, CUstream stream)
{
  if (graph_at_once (graph, stream))
    return real.cuGraphLaunch (graph, stream);
  return launch_graph_slow_path (graph, stream);
}

static __attribute__ ((noinline)) CUresult
launch_graph_ptsz_slow_path (CUgraphExec graph, CUstream stream)
{
  if (vcuda_thread ()->in_driver)
    return real.cuGraphLaunch_ptsz (graph, stream);
  VCUDA_METER (graph, vcuda_per_thread (stream),
               VCUDA_WITH_GRAPH_MEMORY (graph, real.cuGraphLaunch_ptsz (graph, stream)));
}

CUresult
vcuda_cuGraphLaunch_ptsz (CUgraphExec graph, CUstream stream)
{
  if (graph_at_once (graph, vcuda_per_thread (stream)))
    return real.cuGraphLaunch_ptsz (graph, stream);
  return launch_graph_ptsz_slow_path (graph, stream);
}

#define WAIT(waited, stream, call)                                                                 \
  do                                                                                               \
    {                                                                                              \
      VCUDA_PASS_ON (call);                                                                        \
      uint64_t began = vcuda_wait_begin ();                                                        \
      CUresult rc = VCUDA_CALL_DRIVER (call);                                                      \
      vcuda_wait_end (began, VCUDA_WAITED_##waited, stream);                                       \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

CUresult
vcuda_cuCtxSynchronize (void)
{
  WAIT (CONTEXT, NULL, real.cuCtxSynchronize ());
}

CUresult
vcuda_cuCtxSynchronize_v2 (CUcontext context)
{
  WAIT (CONTEXT, NULL, real.cuCtxSynchronize_v2 (context));
}

CUresult
vcuda_cuStreamSynchronize (CUstream stream)
{
  WAIT (STREAM, stream, real.cuStreamSynchronize (stream));
}

CUresult
vcuda_cuStreamSynchronize_ptsz (CUstream stream)
{
  WAIT (STREAM, vcuda_per_thread (stream), real.cuStreamSynchronize_ptsz (stream));
}

CUresult
vcuda_cuEventSynchronize (CUevent event)
{
  vcuda_off_gpu_event (event);
  WAIT (EVENT, NULL, real.cuEventSynchronize (event));
}
