/* GPU time that a thread has in hand: most launches are paid from it with a subtraction.  */

#ifndef VCUDA_CREDIT_H
#define VCUDA_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/estimate.h"
#include "thread/thread.h"

/* No context has this handle: who notes it is asked about its next launch.  */
#define VCUDA_NO_CONTEXT ((CUcontext) ~(uintptr_t) 0)

/* Above 0 while a launch is measured and other threads may launch into its interval.  */
extern int vcuda_sampling;

/* Threads that hold credit.  */
extern int vcuda_credit_threads;

/* True: the launch is paid for, nothing more to do.  */
static inline bool
vcuda_launch_at_once_of (struct vcuda_thread *thread, const void *function, CUstream stream)
{
  struct vcuda_credit *credit = &thread->credit;
  int64_t cost = vcuda_cost (function);
  int64_t left = credit->ns - cost;
  if (__builtin_expect (
          (left < 0) | (credit->stream != stream) | (credit->context != thread->current.context)
              | (thread->in_driver != 0) | __atomic_load_n (&vcuda_sampling, __ATOMIC_RELAXED),
          0))
    return false;
  credit->ns = left;
  credit->launches++;
  return true;
}

static inline bool
vcuda_launch_at_once (const void *function, CUstream stream)
{
  return vcuda_launch_at_once_of (vcuda_thread (), function, stream);
}

/* The thread will launch in STREAM on GPU.  */
void vcuda_credit_follow (int gpu, CUstream stream);

/* GPU time until the next sample, chosen anew each time so that no program can step round it.  */
int64_t vcuda_credit_portion (void);

/* Adds a portion that was taken from the bucket.  */
void vcuda_credit_add (int64_t ns);

/* What was used since the last call: to be counted as busy time.  */
int64_t vcuda_credit_used (void);

/* Counts launches and busy time that nobody counted yet.  */
void vcuda_credit_count (void);

/* In the child after a fork.  */
void vcuda_credit_forget (void);

#endif
