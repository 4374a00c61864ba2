/* This process's slot of the usage page.  */

#pragma once

#include <stdbool.h>

#include "pages/pages.h"

/* Only the functions below use it.  */
struct vcuda_own_slot
{
  struct vcuda_usage_slot *slot;
  uint32_t generation;
};
extern struct vcuda_own_slot vcuda_own_slot __attribute__ ((visibility ("hidden")));
struct vcuda_usage_slot *vcuda_slot_take (void);

/* Whether SLOT is still this process's: another process may take it once the program has closed the
   shim's descriptor.  */
static inline bool
vcuda_slot_is_own (const struct vcuda_usage_slot *slot)
{
  return slot && __atomic_load_n (&slot->pid, __ATOMIC_RELAXED)
         && __atomic_load_n (&slot->generation, __ATOMIC_RELAXED)
                == __atomic_load_n (&vcuda_own_slot.generation, __ATOMIC_RELAXED);
}

/* This process's slot, taken at the first call; NULL when every slot is held by a live process.  */
static inline struct vcuda_usage_slot *
vcuda_slot (void)
{
  struct vcuda_usage_slot *slot = __atomic_load_n (&vcuda_own_slot.slot, __ATOMIC_ACQUIRE);
  return vcuda_slot_is_own (slot) ? slot : vcuda_slot_take ();
}

/* The number of the slot of the process that this one sees as PID; -1: it has none. In another pid
   namespace the start time tells two processes of the same number apart.  */
int vcuda_slot_of_process (int pid);

/* Writes what this process holds into a slot that it has just taken. A program that closes every
   descriptor loses its slot and takes another. entry/init.c sets this function when the shim is
   loaded, because what is held is known in rooms above this one.  */
typedef void vcuda_enter_held (struct vcuda_usage_slot *slot);
extern vcuda_enter_held *vcuda_slot_enter_held;

/* Gives back what dead processes held. Callable from any thread, at any time.  */
void vcuda_slots_reclaim (void);

/* The same, at most every 50 ms, for calls that only read.  */
void vcuda_slots_reclaim_sometimes (void);

/* Adds to this process's bytes on one GPU; BYTES may be negative.  */
static inline void
vcuda_slot_hold (struct vcuda_usage_slot *slot, int gpu, int64_t bytes)
{
  __atomic_fetch_add (&slot->held_bytes[gpu], (uint64_t) bytes, __ATOMIC_SEQ_CST);
}

/* Whether a checkpoint has taken the bytes of slot AT off the GPU: they do not count then.  */
static inline bool
vcuda_slot_is_off (unsigned at)
{
  return __atomic_load_n (&vcuda_pages.usage->off_gpu[at / 32], __ATOMIC_RELAXED) >> at % 32 & 1;
}

/* Returns whether it was.  */
static inline bool
vcuda_slot_set_off (unsigned at, bool off)
{
  uint32_t *word = &vcuda_pages.usage->off_gpu[at / 32], bit = 1u << at % 32;
  uint32_t before = off ? __atomic_fetch_or (word, bit, __ATOMIC_SEQ_CST)
                        : __atomic_fetch_and (word, ~bit, __ATOMIC_SEQ_CST);
  return before & bit;
}

/* Whether the process of slot AT holds what the driver cannot take off the GPU.  */
static inline void
vcuda_slot_set_unsaved (unsigned at, enum vcuda_unsaved kind, bool is_so)
{
  uint32_t *word = &vcuda_pages.usage->gpu[(unsigned) kind + at / 32].unsaved, bit = 1u << at % 32;
  if (is_so)
    __atomic_fetch_or (word, bit, __ATOMIC_SEQ_CST);
  else
    __atomic_fetch_and (word, ~bit, __ATOMIC_SEQ_CST);
}

/* The container's use of one GPU: the sum over all slots.  */
static inline uint64_t
vcuda_held_bytes (int gpu)
{
  const struct vcuda_usage *usage = vcuda_pages.usage;
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  uint64_t sum = 0;
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    if (__builtin_expect (!vcuda_slot_is_off (i), 1))
      sum += __atomic_load_n (&usage->slot[i].held_bytes[gpu], __ATOMIC_SEQ_CST);
  return sum;
}

/* Takes the lock that a process needs to refuse an allocation. Only one process of the container
   has it at a time. False: another one had it until DEADLINE_NS of CLOCK_MONOTONIC.  */
bool vcuda_refuse_lock (uint64_t deadline_ns);
void vcuda_refuse_unlock (void);

/* In the child after a fork: the parent's slot is not the child's.  */
void vcuda_slot_forget (void);
