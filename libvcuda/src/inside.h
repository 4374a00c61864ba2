/* Are we within a call to the driver? A driver whose functions call each other by their exported
   names reaches the shim instead, when the program linked it: cuMemAllocPitch would be charged
   again by the cuMemAlloc in it.  */

#ifndef VCUDA_INSIDE_H
#define VCUDA_INSIDE_H

#include <pthread.h>

/* A few bytes of static TLS: no call to find it.  */
extern __thread int vcuda_inside __attribute__ ((tls_model ("initial-exec")));

/* CALL, as the driver's own work.  */
#define VCUDA_WITHIN(call)                                                                         \
  ({                                                                                               \
    vcuda_inside++;                                                                                \
    CUresult within_rc = call;                                                                     \
    vcuda_inside--;                                                                                \
    within_rc;                                                                                     \
  })

/* The locks that a launch or a look at memory may take. A signal handler that launches while its
   own thread holds one would wait for itself: it finds itself inside and is passed on.  */
static inline void
vcuda_lock (pthread_mutex_t *mutex)
{
  vcuda_inside++;
  pthread_mutex_lock (mutex);
}

static inline void
vcuda_unlock (pthread_mutex_t *mutex)
{
  pthread_mutex_unlock (mutex);
  vcuda_inside--;
}

#endif
