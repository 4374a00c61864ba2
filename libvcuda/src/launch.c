/* Every way to start GPU work, and the calls that wait for it.  */

#include "inside.h"
#include "meter.h"
#include "pages.h"

#define METER(key, launch_stream, call)                                                            \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_launch launch;                                                                  \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      if (vcuda_inside || !vcuda_launch_begin (&launch, key, launch_stream))                       \
        return call;                                                                               \
      CUresult rc = VCUDA_WITHIN (call);                                                           \
      vcuda_launch_end (&launch, rc);                                                              \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

/* In the _ptsz variants no stream means the thread's own; its handle names it to every function. */
static CUstream
per_thread (CUstream stream)
{
  return stream ? stream : CU_STREAM_PER_THREAD;
}

CUresult
vcuda_cuLaunchKernel (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                      unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                      CUstream stream, void **parameters, void **extra)
{
  METER (f, stream,
         real.cuLaunchKernel (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra));
}

CUresult
vcuda_cuLaunchKernel_ptsz (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                           unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
                           CUstream stream, void **parameters, void **extra)
{
  METER (f, per_thread (stream),
         real.cuLaunchKernel_ptsz (f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra));
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

CUresult
vcuda_cuGraphLaunch (CUgraphExec graph, CUstream stream)
{
  METER (graph, stream, real.cuGraphLaunch (graph, stream));
}

CUresult
vcuda_cuGraphLaunch_ptsz (CUgraphExec graph, CUstream stream)
{
  METER (graph, per_thread (stream), real.cuGraphLaunch_ptsz (graph, stream));
}

/* After a wait much has ended: charging it now keeps the statistics fresh.  */
#define WAIT(call)                                                                                 \
  do                                                                                               \
    {                                                                                              \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      CUresult rc = call;                                                                          \
      if (rc == CUDA_SUCCESS && !vcuda_inside)                                                     \
        vcuda_meter_collect ();                                                                    \
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
