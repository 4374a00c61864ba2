/* A thread's credit of GPU time: most launches are paid from it by a subtraction.  */

#ifndef VCUDA_CREDIT_H
#define VCUDA_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "compute/estimate.h"
#include "thread/thread.h"

/* No context has this handle: storing it sends the thread's next launch to the slow path.  */
#define VCUDA_NO_CONTEXT ((CUcontext) ~(uintptr_t) 0)

/* Above 0 while a launch is measured and other threads may launch into its interval.  */
extern int vcuda_sampling __attribute__ ((visibility ("hidden")));

/* Threads that hold credit.  */
extern int vcuda_credit_threads;

/* The limits page; before it is mapped, a word that is 0.  */
extern const char *vcuda_turn_base __attribute__ ((visibility ("hidden")));

/* True: the launch is paid for, and goes to the driver.  */
static inline bool
vcuda_launch_at_once_of (struct vcuda_thread *thread, const void *function, CUstream stream)
{
  struct vcuda_credit *credit = &thread->credit;
  const char *turn_base = __atomic_load_n (&vcuda_turn_base, __ATOMIC_RELAXED);
  int64_t cost = vcuda_cost (function);
  int64_t left = credit->ns - cost;
  uint32_t turn
      = __atomic_load_n ((const uint32_t *) (turn_base + credit->turn_offset), __ATOMIC_RELAXED);
  /* One value for all: a comparison takes two instructions more than this.  */
  uint64_t differs = ((uintptr_t) credit->stream ^ (uintptr_t) stream)
                     | ((uintptr_t) credit->context ^ (uintptr_t) thread->current.context)
                     | (turn ^ credit->turn) | (unsigned int) thread->in_driver
                     | (unsigned int) __atomic_load_n (&vcuda_sampling, __ATOMIC_RELAXED);
  if (__builtin_expect ((left < 0) | (differs != 0), 0))
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

/* Switches the thread's credit to STREAM on GPU.  */
void vcuda_credit_follow (int gpu, CUstream stream);

/* GPU time until the next sample, random so that no program can avoid the samples.  */
int64_t vcuda_credit_portion (void);

/* Adds a portion that was taken from the bucket.  */
void vcuda_credit_add (int64_t ns);

/* Takes GPU time from the bucket, if the GPU is paced and the thread is in no turn. NS below 0
   gives time back.  */
void vcuda_charge_time (int gpu, int64_t ns);

/* The credit used since the last call, to be counted as busy time.  */
int64_t vcuda_credit_used (void);

/* Adds launches and busy time that are not counted yet to the usage page.  */
void vcuda_credit_count (void);

/* In the child after a fork.  */
void vcuda_credit_forget (void);

#endif
