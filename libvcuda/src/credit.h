/* GPU time that a thread has in hand: most launches are paid from it with a subtraction.  */

#ifndef VCUDA_CREDIT_H
#define VCUDA_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

#include "current.h"
#include "estimate.h"
#include "inside.h"

struct vcuda_credit
{
  int64_t ns;
  CUcontext context;     /* current, and */
  CUstream stream;       /* the stream, at the last launch: both tell whose credit this is */
  int64_t counted;       /* `ns` when its use was last counted as busy time, and */
  int64_t sampled;       /* when a launch was last measured; both move with what is added */
  int64_t waited;        /* when a wait last ended; moves with what is added */
  uint64_t paid;         /* by the process, in all, when a wait last ended */
  uint64_t suspected_ns; /* CLOCK_MONOTONIC of the last wait that took too long */
  uint32_t launches;     /* not counted yet */
  uint32_t random;
  int16_t gpu;
  uint16_t suspects; /* how many launches that makes suspect */
  uint16_t measure;  /* so many launches to come are measured, whatever is known of them */
  bool joined;       /* counted in vcuda_credit_threads */
  bool waits;        /* took a portion, and waits for the share before the next launch */
  bool mixed;        /* launched in several streams since the last sample */
};

/* About a hundred bytes of static TLS: no call to find them.  */
extern __thread struct vcuda_credit vcuda_credit __attribute__ ((tls_model ("initial-exec")));

/* No context has this handle: who notes it is asked about its next launch.  */
#define VCUDA_NO_CONTEXT ((CUcontext) ~(uintptr_t) 0)

/* Above 0 while a launch is measured and other threads may launch into its interval.  */
extern int vcuda_sampling;

/* Threads that hold credit.  */
extern int vcuda_credit_threads;

/* True: the launch is paid for, nothing more to do.  */
static inline bool
vcuda_launch_at_once (const void *function, CUstream stream)
{
  struct vcuda_credit *credit = &vcuda_credit;
  int64_t cost = vcuda_cost (function);
  int64_t left = credit->ns - cost;
  if (__builtin_expect ((left < 0) | (credit->stream != stream)
                            | (credit->context != vcuda_current.context) | (vcuda_inside != 0)
                            | __atomic_load_n (&vcuda_sampling, __ATOMIC_RELAXED),
                        0))
    return false;
  credit->ns = left;
  credit->launches++;
  return true;
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
