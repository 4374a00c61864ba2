/* Whether a thread is within a call to the driver. A driver whose functions call each other by
   their exported names reaches the shim instead, when the program linked it: cuMemAllocPitch would
   be charged again by the cuMemAlloc in it.  */

#ifndef VCUDA_IN_DRIVER_H
#define VCUDA_IN_DRIVER_H

#include <pthread.h>

#include "thread/thread.h"

/* CALL of THREAD, as the driver's own work.  */
#define VCUDA_WITHIN_OF(thread, call)                                                              \
  ({                                                                                               \
    (thread)->in_driver++;                                                                         \
    CUresult within_rc = call;                                                                     \
    (thread)->in_driver--;                                                                         \
    within_rc;                                                                                     \
  })

#define VCUDA_WITHIN(call)                                                                         \
  ({                                                                                               \
    struct vcuda_thread *within = vcuda_thread ();                                                 \
    VCUDA_WITHIN_OF (within, call);                                                                \
  })

/* The locks that a launch or a query of memory may take. A signal handler that launches while its
   own thread holds one would deadlock. So a thread that holds one counts as in the driver, and its
   calls are passed on.  */
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

#endif
