/* The first lines of a call that the shim does more for than pass it on.  */

#ifndef VCUDA_PASS_ON_H
#define VCUDA_PASS_ON_H

#include "pages/pages.h"
#include "thread/thread.h"

/* Returns from the calling function: with CALL where the driver calls, with an error where there
   are no pages.  */
#define VCUDA_PASS_ON(call)                                                                        \
  do                                                                                               \
    {                                                                                              \
      if (vcuda_thread ()->in_driver)                                                              \
        return call;                                                                               \
      if (!vcuda_ready ())                                                                         \
        return CUDA_ERROR_SYSTEM_NOT_READY;                                                        \
    }                                                                                              \
  while (0)

#endif
