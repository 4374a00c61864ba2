/* The calling thread's current context, remembered: asking the driver each time would cost more
   than the charge itself. Every export that changes a thread's context goes through here.  */

#ifndef VCUDA_CURRENT_H
#define VCUDA_CURRENT_H

#include <stdbool.h>
#include <stdint.h>

#include "real.h"

struct vcuda_current
{
  CUcontext context; /* NULL: the driver must be asked */
  uint32_t epoch;
  int16_t gpu;
  /* How many more answers of cuMemGetInfo may be given without asking the clock, and how many the
     last time that it was asked.  */
  uint8_t unclocked, unclocked_run;
};

/* A few bytes of static TLS: no call to find them.  */
extern __thread struct vcuda_current vcuda_current __attribute__ ((tls_model ("initial-exec")));

/* Grows when a context ends, which may be current to any thread.  */
extern uint32_t vcuda_current_epoch;

static inline bool
vcuda_current_known (void)
{
  return vcuda_current.context
         && vcuda_current.epoch == __atomic_load_n (&vcuda_current_epoch, __ATOMIC_ACQUIRE);
}

/* Some context has ended, or the process has forked.  */
void vcuda_current_forget_all (void);

#endif
