/* The one lock of the state file.

   It is a futex that contains its holder's slot and the slot's generation. A robust pthread mutex
   would contain a thread id, which names another thread in another pid namespace. Here a waiter
   that has slept for a while asks the kernel whether the holder's slot is still locked, and takes
   the lock over from a dead holder. No holder sleeps, so the lock is mostly held for a few
   microseconds.  */

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "state/attach.h"

#define WAITERS SOFTGPU_LOCK_WAITERS
#define PATIENCE_NS 2000000

static bool
holder_lives (struct attachment *tie, uint32_t word)
{
  uint32_t id = word & ~WAITERS;
  unsigned slot = (id & ((1u << SOFTGPU_LOCK_SLOT_BITS) - 1)) - 1;
  return slot < SOFTGPU_MAX_SLOTS
         && id == softgpu_lock_id (slot, atomic_load (&tie->state->slot[slot].generation))
         && softgpu_slot_alive (tie, slot);
}

/* Not by the C library's syscall, which a program's virtual clock may replace. The software GPU is
   for x86-64 only.  */
static long
call_futex (_Atomic uint32_t *word, long operation, uint32_t value, const struct timespec *patience)
{
  long answer;
  register const struct timespec *fourth __asm__ ("r10") = patience;
  __asm__ volatile ("syscall"
                    : "=a"(answer)
                    : "a"(SYS_futex), "D"(word), "S"(operation), "d"(value), "r"(fourth)
                    : "rcx", "r11", "memory");
  return answer;
}

/* False: nothing has woken this thread for a while.  */
static bool
wait_for_change (_Atomic uint32_t *word, uint32_t seen)
{
  struct timespec patience = { .tv_nsec = PATIENCE_NS };
  return call_futex (word, FUTEX_WAIT, seen, &patience) != -ETIMEDOUT;
}

void
softgpu_begin_change (struct softgpu_state *state, const struct softgpu_slot *slot)
{
  memcpy (&state->unchanged, slot, sizeof *slot);
  atomic_store (&state->changing, (uint32_t) (slot - state->slot) + 1);
}

void
softgpu_end_change (struct softgpu_state *state)
{
  atomic_store (&state->changing, 0);
}

/* What a dead holder of the lock had begun.  */
static void
undo_change (struct softgpu_state *state)
{
  uint32_t changing = atomic_load (&state->changing);
  struct softgpu_slot *slot = changing ? &state->slot[changing - 1] : NULL;
  if (slot && atomic_load (&slot->generation) == atomic_load (&state->unchanged.generation))
    memcpy (slot, &state->unchanged, sizeof *slot);
  softgpu_end_change (state);
}

void
softgpu_lock (struct attachment *tie)
{
  _Atomic uint32_t *word = &tie->state->lock;
  uint32_t seen = 0;
  if (atomic_compare_exchange_strong (word, &seen, tie->lock_id))
    return;
  int saved = errno;
  for (;;)
    {
      /* A thread that has waited once can't know whether others wait too: it sets the bit always.
       */
      if (seen == 0)
        {
          if (atomic_compare_exchange_strong (word, &seen, tie->lock_id | WAITERS))
            break;
          continue;
        }
      if (!(seen & WAITERS))
        {
          if (!atomic_compare_exchange_strong (word, &seen, seen | WAITERS))
            continue;
          seen |= WAITERS;
        }
      bool timed_out = !wait_for_change (word, seen);
      uint32_t now = atomic_load (word);
      if (timed_out && now == seen && !holder_lives (tie, seen)
          && atomic_compare_exchange_strong (word, &seen, tie->lock_id | WAITERS))
        {
          undo_change (tie->state);
          break;
        }
      seen = atomic_load (word);
    }
  errno = saved;
}

void
softgpu_unlock (struct attachment *tie)
{
  uint32_t old = atomic_exchange (&tie->state->lock, 0);
  if (old & WAITERS)
    call_futex (&tie->state->lock, FUTEX_WAKE, 1, NULL);
}
