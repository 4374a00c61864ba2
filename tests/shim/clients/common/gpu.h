/* Macros that the clients share. The clients are linked with -lcuda, as programs are.  */

#pragma once

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(call)                                                                                 \
  do                                                                                               \
    {                                                                                              \
      CUresult must = call;                                                                        \
      if (must != CUDA_SUCCESS)                                                                    \
        {                                                                                          \
          fprintf (stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, (int) must);          \
          exit (1);                                                                                \
        }                                                                                          \
    }                                                                                              \
  while (0)

static inline CUcontext
use_gpu (int ordinal)
{
  CUdevice device;
  CUcontext context;
  MUST (cuInit (0));
  MUST (cuDeviceGet (&device, ordinal));
  MUST (cuDevicePrimaryCtxRetain (&context, device));
  MUST (cuCtxSetCurrent (context));
  return context;
}
