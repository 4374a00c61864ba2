/* Whether a thread is in a call to the driver. Functions of a driver may call each other by their
   exported names, and reach the shim where the program is linked with it: without this mark the
   cuMemAlloc in a cuMemAllocPitch would be charged twice.  */

#pragma once

#include <pthread.h>

#include "thread/thread.h"

/* Makes CALL for THREAD, marked as in the driver.  */
#define VCUDA_CALL_DRIVER_OF(thread, call)                                                         \
  ({                                                                                               \
    (thread)->in_driver++;                                                                         \
    CUresult driver_rc = call;                                                                     \
    (thread)->in_driver--;                                                                         \
    driver_rc;                                                                                     \
  })

#define VCUDA_CALL_DRIVER(call)                                                                    \
  ({                                                                                               \
    struct vcuda_thread *caller = vcuda_thread ();                                                 \
    VCUDA_CALL_DRIVER_OF (caller, call);                                                           \
  })

/* Locks that a launch or a query of memory may take. A signal handler that launches while its own
   thread holds one would deadlock, so a thread that holds one counts as in the driver and its calls
   are passed on.  */
static inline void
vcuda_lock (pthread_mutex_t *mutex)
{
  vcuda_thread ()->in_driver++;
  pthread_mutex_lock (mutex);
}

static inline void
vcuda_unlock (pthread_mutex_t *mutex)
{
  pthread_mutex_unlock (mutex);
  vcuda_thread ()->in_driver--;
}
