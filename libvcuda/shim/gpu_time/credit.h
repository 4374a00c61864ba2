/* A thread's credit of GPU time: most launches are paid from it by a subtraction.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu_time/estimate.h"
#include "thread/thread.h"

/* No context has this handle: storing it sends the thread's next launch to the slow path.  */
#define VCUDA_NO_CONTEXT ((CUcontext) ~(uintptr_t) 0)

/* Above 0 while a launch is measured and other threads may launch into its interval.  */
extern int vcuda_sampling __attribute__ ((visibility ("hidden")));

/* Threads that hold credit.  */
extern int vcuda_credit_threads;

/* The limits page; before it is mapped, a word that is 0.  */
extern const char *vcuda_turn_base __attribute__ ((visibility ("hidden")));

/* True: the launch of COST is paid for, and goes to the driver.

   A branch for each condition: the processor predicts them, so none waits for another's load before
   the driver's first atomic, which waits for all that precede it.  */
static inline bool
vcuda_launch_at_cost (struct vcuda_thread *thread, int64_t cost, CUstream stream)
{
  struct vcuda_credit *credit = &thread->credit;
  int64_t left = credit->ns - cost;
  const char *turn_base = __atomic_load_n (&vcuda_turn_base, __ATOMIC_RELAXED);
  const void *turn_at = turn_base + credit->turn_offset;
  if (__builtin_expect (credit->stream != stream, 0)
      || __builtin_expect (credit->context != thread->current.context, 0)
      || __builtin_expect (
          __atomic_load_n ((const uint32_t *) turn_at, __ATOMIC_RELAXED) != credit->turn, 0)
      || __builtin_expect (thread->in_driver != 0, 0)
      || __builtin_expect (__atomic_load_n (&vcuda_sampling, __ATOMIC_RELAXED) != 0, 0)
      || __builtin_expect (left < 0, 0))
    return false;
  credit->ns = left;
  credit->launches++;
  return true;
}

static inline bool
vcuda_launch_at_once_of (struct vcuda_thread *thread, const void *function, CUstream stream)
{
  return vcuda_launch_at_cost (thread, vcuda_cost (function), stream);
}

/* False also for a function that shares its place in the table: vcuda_launch_at_once_of finds it.
   The path of most launches, so it has to do without saved registers.  */
static inline bool
vcuda_launch_at_once (const void *function, CUstream stream)
{
  const struct vcuda_cost *cost = vcuda_costs[vcuda_cost_bucket (function)];
  return __builtin_expect (__atomic_load_n (&cost->function, __ATOMIC_RELAXED) == function, 1)
         && vcuda_launch_at_cost (vcuda_thread (), __atomic_load_n (&cost->ns, __ATOMIC_RELAXED),
                                  stream);
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
