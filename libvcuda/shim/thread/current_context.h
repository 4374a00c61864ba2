/* The calling thread's current context, remembered: asking the driver at each call would cost more
   than the charge itself. Every export that changes a thread's context updates it.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "real.h"
#include "thread/thread.h"

/* Grows when a context ends, which may be the current one of any thread.  */
extern uint32_t vcuda_current_epoch __attribute__ ((visibility ("hidden")));

/* NULL: the driver must be asked.  */
static inline struct vcuda_current *
vcuda_current_known (void)
{
  struct vcuda_current *current = &vcuda_thread ()->current;
  bool known = current->context
               && current->epoch == __atomic_load_n (&vcuda_current_epoch, __ATOMIC_ACQUIRE);
  return known ? current : NULL;
}

/* The calling thread's context may have changed.  */
static inline void
vcuda_current_forget (void)
{
  struct vcuda_current *current = &vcuda_thread ()->current;
  current->unclocked = 0;
  current->context = NULL;
}

/* Some context has ended, or the process has forked.  */
void vcuda_current_forget_all (void);

/* Events belong to their stream's context. True: CONTEXT was made current and must be left.  */
bool vcuda_enter_context (CUcontext context);
void vcuda_leave_context (bool entered);
