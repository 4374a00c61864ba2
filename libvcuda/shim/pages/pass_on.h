/* The first lines of a call that the shim charges or counts.  */

#pragma once

#include "pages/pages.h"
#include "thread/thread.h"

/* Returns from the calling function: with CALL if the driver is the caller, with an error if the
   pages are missing.  */
#define VCUDA_PASS_ON(call)                                                                        \
  do                                                                                               \
    {                                                                                              \
      if (vcuda_thread ()->in_driver)                                                              \
        return call;                                                                               \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
    }                                                                                              \
  while (0)
