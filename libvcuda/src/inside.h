/* Are we within a call to the driver? A driver whose functions call each other by their exported
   names reaches the shim instead, when the program linked it: cuMemAllocPitch would be charged
   again by the cuMemAlloc in it.  */

#ifndef VCUDA_INSIDE_H
#define VCUDA_INSIDE_H

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

#endif
