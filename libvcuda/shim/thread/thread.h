/* What the shim remembers of each thread, in one variable.

   A thread reads static TLS without a call, but glibc keeps only a small reserve of it for
   libraries that a running program opens. A library of the initial-exec model cannot be opened once
   other libraries have used up the reserve. Through a TLS descriptor the loader places the variable
   in the reserve, or, where that is full, in memory that each thread allocates at its first use.

   A call through the descriptor costs more than a launch may. So the shim reads the descriptor
   once, when it is loaded, and uses the variable's fixed place directly if it has one.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "real.h"

struct vcuda_current
{
  CUcontext context; /* NULL: the driver must be asked */
  uint32_t epoch;
  int16_t gpu;
  /* How many more answers of cuMemGetInfo may be given without reading the clock, and how many were
     allowed at the last reading. Above 0 only while the context is known.  */
  uint8_t unclocked, unclocked_run;
};

/* An answer of cuMemGetInfo. It stays right, except for the driver's own free memory, while three
   words of the pages hold what they held when it was computed.  */
struct vcuda_view
{
  const uint32_t *slots_used_at; /* 1; with more slots the sum of all is compared */
  const uint64_t *held_at, *limit_at;
  uint64_t held, limit;
  size_t free_bytes, total;
};

struct vcuda_credit
{
  int64_t ns;
  CUcontext context; /* the current context at the last launch */
  CUstream stream;   /* the stream of the last launch */
  /* The value of `ns` at an earlier moment, plus what was added since.  */
  int64_t counted;        /* when its use was last counted as busy time */
  int64_t sampled;        /* when a launch was last measured */
  int64_t waited;         /* when a wait last ended */
  uint64_t paid;          /* busy time of the process when a wait last ended */
  uint64_t suspected_ns;  /* CLOCK_MONOTONIC of the last wait that took too long */
  uint32_t launches;      /* not counted yet */
  uint32_t turn;          /* the word of the limits page at the last launch (turn.h) */
  uint32_t turn_offset;   /* of that word */
  uint32_t breaks;        /* of the meter when a launch was last measured */
  uint32_t turn_launches; /* of the process when a wait began */
  uint32_t suspensions;   /* of the container, likewise */
  uint32_t random;
  int16_t gpu;
  uint16_t suspects; /* how many launches were measured after that wait */
  uint16_t measure;  /* how many of the next launches are measured, whatever is known of them */
  bool joined;       /* counted in vcuda_credit_threads */
  bool in_turn;      /* its last launch was in a turn: the keeper's queue pays, not the bucket */
  bool skips_turn;   /* this launch waits for no turn: a kernel in the queue waits for it */
  bool waits;        /* took a portion, and waits for the share before the next launch */
  bool mixed; /* queued other work than the GPU's, or changed the GPU, since the last sample */
};

/* The thread's call through a gate (entry/gate.h). gate.inc knows the first two fields.  */
struct vcuda_gate
{
  const void *return_address;    /* of the caller of the gate */
  uintptr_t saved_register;      /* the caller's value of the register that points here */
  struct vcuda_usage_slot *slot; /* where the call is counted; NULL: nowhere */
  uint32_t generation;           /* of that slot */
  bool inside;
};

struct vcuda_thread
{
  struct vcuda_gate gate;
  /* Above 0: within a call to the driver (in_driver.h).  */
  int in_driver;
  /* Which word of the process's slot this thread marks, from 1; 0: none yet (decisions.h).  */
  uint32_t thread_slot;
  struct vcuda_current current;
  struct vcuda_view view; /* valid while current.unclocked is above 0 */
  struct vcuda_credit credit;
  struct saved_credit *saved_credits; /* of the thread's other GPUs (credit.c) */
};

#ifdef __x86_64__

/* The variable's offset from the thread pointer, the same in every thread; 0: it has no fixed
   offset, so call the descriptor.  */
extern intptr_t vcuda_thread_offset __attribute__ ((visibility ("hidden")));

static inline struct vcuda_thread *
vcuda_thread (void)
{
  struct vcuda_thread *thread;
  intptr_t offset = vcuda_thread_offset;
  if (__builtin_expect (offset != 0, 1))
    {
      char *pointer;
      __asm__ ("mov %%fs:0, %0" : "=r"(pointer));
      return (struct vcuda_thread *) (pointer + offset);
    }
  /* Preserves the general registers, so that a caller need not have saved its arguments. The vector
     registers are listed as changed: glibc before 2.40 may change them when it allocates the
     variable, which a compiler's own code for descriptors does not expect (sourceware bug 31372).
     The red zone below the stack pointer is the caller's.  */
  __asm__ ("lea -128(%%rsp), %%rsp\n\t"
           "call vcuda_thread_by_descriptor\n\t"
           "lea 128(%%rsp), %%rsp"
           : "=a"(thread)
           :
           : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
             "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
  return thread;
}

#else

extern __thread struct vcuda_thread vcuda_thread_state;

/* The compiler uses a TLS descriptor on arm64, and the loader preserves the registers.  */
static inline struct vcuda_thread *
vcuda_thread (void)
{
  return &vcuda_thread_state;
}

#endif
