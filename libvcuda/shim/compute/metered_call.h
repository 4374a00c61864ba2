/* The body of a call that starts GPU work.  */

#ifndef VCUDA_METERED_CALL_H
#define VCUDA_METERED_CALL_H

#include "compute/credit.h"
#include "compute/meter.h"
#include "pages/pages.h"

/* CALL of THREAD; KEY is what the cost is known by: a function, a graph, a kind of copy.  */
#define VCUDA_METER_OF(thread, key, launch_stream, call)                                           \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_launch launch;                                                                  \
      if (vcuda_launch_at_once_of (thread, key, launch_stream))                                    \
        return VCUDA_WITHIN_OF (thread, call);                                                     \
      /* Not settled by the thread's credit: may be measured, and may wait.  */                    \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
      if ((thread)->in_driver || !vcuda_launch_begin (&launch, key, launch_stream))                \
        return VCUDA_WITHIN_OF (thread, call);                                                     \
      CUresult rc = VCUDA_WITHIN_OF (thread, call);                                                \
      vcuda_launch_end (&launch, rc);                                                              \
      return rc;                                                                                   \
    }                                                                                              \
  while (0)

#define VCUDA_METER(key, launch_stream, call)                                                      \
  do                                                                                               \
    {                                                                                              \
      struct vcuda_thread *metered = vcuda_thread ();                                              \
      VCUDA_METER_OF (metered, key, launch_stream, call);                                          \
    }                                                                                              \
  while (0)

/* In the _ptsz variants no stream means the thread's own; its handle names it to every function. */
static inline CUstream
vcuda_per_thread (CUstream stream)
{
  return stream ? stream : CU_STREAM_PER_THREAD;
}

#endif
