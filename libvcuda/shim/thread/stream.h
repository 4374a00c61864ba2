/* The stream that a call means.  */

#ifndef VCUDA_STREAM_H
#define VCUDA_STREAM_H

#include "real.h"

/* In the _ptsz variants no stream means the thread's own; its handle names it to every function. */
static inline CUstream
vcuda_per_thread (CUstream stream)
{
  return stream ? stream : CU_STREAM_PER_THREAD;
}

#endif
