/* The stream that a call uses.  */

#pragma once

#include "real.h"

/* In the _ptsz variants a null stream means the thread's own stream, which has a handle.  */
static inline CUstream
vcuda_per_thread (CUstream stream)
{
  return stream ? stream : CU_STREAM_PER_THREAD;
}
