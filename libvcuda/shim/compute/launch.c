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

#define LAUNCH_KERNEL(name, own_stream)                                                            \
  launch_kernel_type launch_##name __asm__ ("vcuda_" #name);                                       \
  static __attribute__ ((noinline)) CUresult name##_slow_path (KERNEL_PARAMETERS)                  \
  {                                                                                                \
    VCUDA_METER (f, own_stream, REAL (name) (KERNEL_ARGUMENTS));                                   \
  }                                                                                                \
  CUresult launch_##name (KERNEL_PARAMETERS)                                                       \
  {                                                                                                \
    if (vcuda_launch_at_once (f, own_stream))                                                      \
      return REAL (name) (KERNEL_ARGUMENTS);                                                       \
    return name##_slow_path (KERNEL_ARGUMENTS);                                                    \
  }

LAUNCH_KERNEL (cuLaunchKernel, STREAM)
LAUNCH_KERNEL (cuLaunchKernel_ptsz, vcuda_per_thread (STREAM))

/* F is the function that is launched.  */
#define METERED(name, parameters, arguments, launch_stream)                                        \
  CUresult vcuda_##name parameters { VCUDA_METER (f, launch_stream, real.name arguments); }

#define EX (const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra)
#define EX_STREAM (config ? config->hStream : NULL)
#define COOPERATIVE                                                                                \
  (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,               \
   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **parameters)
#define COOPERATIVE_AS (f, gx, gy, gz, bx, by, bz, shared, stream, parameters)

METERED (cuLaunchKernelEx, EX, (config, f, parameters, extra), EX_STREAM)
METERED (cuLaunchKernelEx_ptsz, EX, (config, f, parameters, extra), vcuda_per_thread (EX_STREAM))
METERED (cuLaunchCooperativeKernel, COOPERATIVE, COOPERATIVE_AS, stream)
METERED (cuLaunchCooperativeKernel_ptsz, COOPERATIVE, COOPERATIVE_AS, vcuda_per_thread (stream))
METERED (cuLaunch, (CUfunction f), (f), NULL)
METERED (cuLaunchGrid, (CUfunction f, int width, int height), (f, width, height), NULL)
METERED (cuLaunchGridAsync, (CUfunction f, int width, int height, CUstream stream),
         (f, width, height, stream), stream)

/* While a thread is in the driver, it may hold the lock on the books of memory.  */
#define LAUNCH_GRAPH(name, own_stream)                                                             \
  static __attribute__ ((noinline)) CUresult name##_slow_path (CUgraphExec graph, CUstream stream) \
  {                                                                                                \
    if (vcuda_thread ()->in_driver)                                                                \
      return real.name (graph, stream);                                                            \
    VCUDA_METER (graph, own_stream, VCUDA_WITH_GRAPH_MEMORY (graph, real.name (graph, stream)));   \
  }                                                                                                \
  CUresult vcuda_##name (CUgraphExec graph, CUstream stream)                                       \
  {                                                                                                \
    if (!__atomic_load_n (&vcuda_graph_memory_used, __ATOMIC_RELAXED)                              \
        && vcuda_launch_at_once (graph, own_stream))                                               \
      return real.name (graph, stream);                                                            \
    return name##_slow_path (graph, stream);                                                       \
  }

LAUNCH_GRAPH (cuGraphLaunch, stream)
LAUNCH_GRAPH (cuGraphLaunch_ptsz, vcuda_per_thread (stream))

#define WAIT(waited, own_stream, call)                                                             \
  do                                                                                               \
    {                                                                                              \
      VCUDA_PASS_ON (call);                                                                        \
      uint64_t began = vcuda_wait_begin ();                                                        \
      CUresult rc = VCUDA_CALL_DRIVER (call);                                                      \
      vcuda_wait_end (began, waited, own_stream);                                                  \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

#define WAITS(name, parameters, arguments, waited, own_stream)                                     \
  CUresult vcuda_##name parameters { WAIT (waited, own_stream, real.name arguments); }

WAITS (cuCtxSynchronize, (void), (), VCUDA_WAITED_CONTEXT, NULL)
WAITS (cuCtxSynchronize_v2, (CUcontext context), (context), VCUDA_WAITED_CONTEXT, NULL)
WAITS (cuStreamSynchronize, (CUstream stream), (stream), VCUDA_WAITED_STREAM, stream)
WAITS (cuStreamSynchronize_ptsz, (CUstream stream), (stream), VCUDA_WAITED_STREAM,
       vcuda_per_thread (stream))

CUresult
vcuda_cuEventSynchronize (CUevent event)
{
  vcuda_off_gpu_event (event);
  WAIT (VCUDA_WAITED_EVENT, NULL, real.cuEventSynchronize (event));
}
