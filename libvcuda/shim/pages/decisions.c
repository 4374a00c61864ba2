/* Reads and clears the marks of threads that decide a reservation.  */

#include "pages/decisions.h"

#include <string.h>

#define UNDER_WAY 0xffffu

static uint32_t numbers;

void
vcuda_thread_slot_take (struct vcuda_thread *thread)
{
  thread->thread_slot = __atomic_add_fetch (&numbers, 1, __ATOMIC_RELAXED);
}

void
vcuda_decisions_read (struct vcuda_decisions *decisions)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  memset (decisions, 0, sizeof *decisions);
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    {
      uint32_t shared = __atomic_load_n (&usage->slot[i].asking, __ATOMIC_SEQ_CST);
      decisions->ended[i] = (shared >> 16) * 2;
      decisions->under_way |= (shared & UNDER_WAY) != 0;
      for (int t = 0; t < VCUDA_ASKING_THREADS; t++)
        {
          uint32_t own = __atomic_load_n (&usage->slot[i].thread_asking[t], __ATOMIC_SEQ_CST);
          decisions->ended[i] += own;
          decisions->under_way |= own & 1;
        }
    }
}

bool
vcuda_decisions_unchanged (const struct vcuda_decisions *before,
                           const struct vcuda_decisions *after, const struct vcuda_usage_slot *own)
{
  unsigned mine = (unsigned) (own - vcuda_pages.usage->slot);
  for (unsigned i = 0; i < VCUDA_MAX_PROCESSES; i++)
    if (after->ended[i] != before->ended[i] + (i == mine ? 2 : 0))
      return false;
  return !before->under_way;
}

void
vcuda_decisions_clear (struct vcuda_usage_slot *slot)
{
  __atomic_store_n (&slot->asking, 0, __ATOMIC_SEQ_CST);
  for (int t = 0; t < VCUDA_ASKING_THREADS; t++)
    __atomic_store_n (&slot->thread_asking[t], 0, __ATOMIC_SEQ_CST);
}

bool
vcuda_decisions_are_clear (const struct vcuda_usage_slot *slot)
{
  uint32_t any = __atomic_load_n (&slot->asking, __ATOMIC_SEQ_CST);
  for (int t = 0; t < VCUDA_ASKING_THREADS; t++)
    any |= __atomic_load_n (&slot->thread_asking[t], __ATOMIC_SEQ_CST);
  return any == 0;
}
