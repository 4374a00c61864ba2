/* The body of a call that starts GPU work.  */

#pragma once

#include "compute/sampling.h"
#include "gpu_time/credit.h"
#include "pages/pages.h"
#include "thread/in_driver.h"

/* Makes CALL. KEY identifies its cost: a function, a graph, a kind of copy.  */
#define VCUDA_METER(key, launch_stream, call)                                                      \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_thread *metered = vcuda_thread ();                                              \
      struct vcuda_launch launch;                                                                  \
      if (vcuda_launch_at_once_of (metered, key, launch_stream))                                   \
        return VCUDA_CALL_DRIVER_OF (metered, call);                                               \
      /* Not settled by the thread's credit: may be measured, and may wait.  */                    \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      if (metered->in_driver || !vcuda_launch_begin (&launch, key, launch_stream))                 \
        return VCUDA_CALL_DRIVER_OF (metered, call);                                               \
      CUresult rc = VCUDA_CALL_DRIVER_OF (metered, call);                                          \
      vcuda_launch_end (&launch, rc);                                                              \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)
