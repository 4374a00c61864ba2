/* Which threads of the container are deciding a reservation right now.

   A refusal must rest on a sum to which nobody adds what he will take off again. So whoever decides
   says so in his slot, and counts each decision: two equal readings with nobody deciding had
   nothing between them. A process's first threads have a word of their own to say it in, which
   costs them no locked instruction; the others share one.  */

#ifndef VCUDA_DECISIONS_H
#define VCUDA_DECISIONS_H

#include <stdbool.h>

#include "pages/pages.h"
#include "thread/thread.h"

/* The shared word: its low half counts decisions under way, its high half those that ended.  */
#define VCUDA_ASKING_BEGIN 1u
#define VCUDA_ASKING_END ((1u << 16) - 1u)

/* A thread keeps its word until the process ends, so nothing needs to be done when it ends.  */
void vcuda_asking_count_thread (struct vcuda_thread *thread);

/* Answers the word in which END finds it: NULL is the shared one. A word that is odd is under way,
   and a thread that finds its own so was interrupted while it decided.  */
static inline uint32_t *
vcuda_asking_begin (struct vcuda_usage_slot *slot)
{
  struct vcuda_thread *thread = vcuda_thread ();
  if (thread->asking_number == 0)
    vcuda_asking_count_thread (thread);
  uint32_t at = thread->asking_number - 1;
  if (at < VCUDA_ASKING_THREADS && !(slot->thread_asking[at] & 1))
    {
      uint32_t *own = &slot->thread_asking[at];
      /* Seen by others before the bytes are: what adds those is a locked instruction.  */
      __atomic_store_n (own, *own + 1, __ATOMIC_RELEASE);
      return own;
    }
  __atomic_fetch_add (&slot->asking, VCUDA_ASKING_BEGIN, __ATOMIC_SEQ_CST);
  return NULL;
}

static inline void
vcuda_asking_end (struct vcuda_usage_slot *slot, uint32_t *own)
{
  if (own)
    __atomic_store_n (own, *own + 1, __ATOMIC_RELEASE);
  else
    __atomic_fetch_add (&slot->asking, VCUDA_ASKING_END, __ATOMIC_SEQ_CST);
}

/* Decisions so far in each slot, and whether one is under way in any.  */
struct vcuda_decisions
{
  uint32_t ended[VCUDA_MAX_PROCESSES];
  bool under_way;
};

void vcuda_decisions_read (struct vcuda_decisions *decisions);

/* Did every slot stand still between the two readings, but for one decision in OWN?  */
bool vcuda_stood_still (const struct vcuda_decisions *before, const struct vcuda_decisions *after,
                        const struct vcuda_usage_slot *own);

void vcuda_asking_clear (struct vcuda_usage_slot *slot);
bool vcuda_asking_is_clear (const struct vcuda_usage_slot *slot);

#endif
