/* Which threads of the container are deciding a reservation right now.

   A thread that decides a reservation adds its bytes to the slot, and takes them off again if they
   do not fit (charge/charge.c). A refusal must not rest on a sum with such bytes of another thread.
   So each thread marks its process's slot while it decides, and counts its decisions. Two equal
   readings of these counts without a mark prove that no decision fell between them.

   The first VCUDA_ASKING_THREADS threads of a process have a word each for mark and count, which
   they change without a locked instruction; the other threads share one word.  */

#pragma once

#include <stdbool.h>

#include "pages/pages.h"
#include "thread/thread.h"

/* Added to the shared word. Its low half counts decisions under way, its high half those that
   ended.  */
#define VCUDA_DECISION_BEGIN 1u
#define VCUDA_DECISION_END ((1u << 16) - 1u)

/* Assigns the next word to the thread. It is never assigned again, so the end of a thread needs no
   work.  */
void vcuda_thread_slot_take (struct vcuda_thread *thread);

/* Marks a decision. Returns the thread's own word, which is odd now; NULL: the shared word is used.
   A thread that finds its own word odd is in a signal handler that interrupted a decision.  */
static inline uint32_t *
vcuda_decision_begin (struct vcuda_usage_slot *slot)
{
  struct vcuda_thread *thread = vcuda_thread ();
  if (thread->thread_slot == 0)
    vcuda_thread_slot_take (thread);
  uint32_t at = thread->thread_slot - 1;
  if (at < VCUDA_ASKING_THREADS && !(slot->thread_asking[at] & 1))
    {
      uint32_t *own = &slot->thread_asking[at];
      /* Other processors see the mark before the bytes, which a locked instruction adds.  */
      __atomic_store_n (own, *own + 1, __ATOMIC_RELEASE);
      return own;
    }
  __atomic_fetch_add (&slot->asking, VCUDA_DECISION_BEGIN, __ATOMIC_SEQ_CST);
  return NULL;
}

static inline void
vcuda_decision_end (struct vcuda_usage_slot *slot, uint32_t *own)
{
  if (own)
    __atomic_store_n (own, *own + 1, __ATOMIC_RELEASE);
  else
    __atomic_fetch_add (&slot->asking, VCUDA_DECISION_END, __ATOMIC_SEQ_CST);
}

/* The count of decisions in each slot, and whether any slot has one under way.  */
struct vcuda_decisions
{
  uint32_t ended[VCUDA_MAX_PROCESSES];
  bool under_way;
};

void vcuda_decisions_read (struct vcuda_decisions *decisions);

/* Whether between the two readings there was no decision except one in the slot OWN.  */
bool vcuda_decisions_unchanged (const struct vcuda_decisions *before,
                                const struct vcuda_decisions *after,
                                const struct vcuda_usage_slot *own);

void vcuda_decisions_clear (struct vcuda_usage_slot *slot);
bool vcuda_decisions_are_clear (const struct vcuda_usage_slot *slot);
