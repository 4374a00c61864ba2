/* Which threads of the container are deciding a reservation right now.

   A refusal must rest on a sum that holds no bytes which another thread is about to take off again.
   So each thread marks its process's slot while it decides, and counts its decisions: between two
   equal readings in which no thread was deciding, nothing happened. The first threads of a process
   have a word each for this mark, which costs them no locked instruction; the other threads share
   one word.  */

#ifndef VCUDA_DECISIONS_H
#define VCUDA_DECISIONS_H

#include <stdbool.h>

#include "pages/pages.h"
#include "thread/thread.h"

/* The shared word: its low half counts decisions under way, its high half those that ended.  */
#define VCUDA_DECISION_BEGIN 1u
#define VCUDA_DECISION_END ((1u << 16) - 1u)

/* Gives the thread the next word. The thread keeps it until the process ends, so that the end of a
   thread needs no work.  */
void vcuda_thread_slot_take (struct vcuda_thread *thread);

/* Marks a decision. Returns the word that vcuda_decision_end needs: NULL is the shared one. An odd
   word is under way; a thread that finds its own word odd was interrupted while it decided.  */
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
      /* Other processors see it before they see the bytes: a locked instruction adds those.  */
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

/* Decisions so far in each slot, and whether one is under way in any.  */
struct vcuda_decisions
{
  uint32_t ended[VCUDA_MAX_PROCESSES];
  bool under_way;
};

void vcuda_decisions_read (struct vcuda_decisions *decisions);

/* Whether no slot changed between the two readings, except for one decision in OWN.  */
bool vcuda_decisions_unchanged (const struct vcuda_decisions *before,
                                const struct vcuda_decisions *after,
                                const struct vcuda_usage_slot *own);

void vcuda_decisions_clear (struct vcuda_usage_slot *slot);
bool vcuda_decisions_are_clear (const struct vcuda_usage_slot *slot);

#endif
