/* The virtual clock: which thread runs, and what time it is.

   Each participating thread has a slot in a file that all participating processes map. One thread
   at a time owns the clock and runs. A thread that sleeps writes its wake-up time into its slot and
   makes the thread with the earliest wake-up time the owner; that time becomes the current time. So
   time passes only by sleeping and, a little, by reading the clock, and the order of events is the
   same on every machine, however busy it is. No thread runs before all processes have joined.

   A process holds an OFD lock on a byte of the file for each of its slots; the kernel drops it when
   the process ends. A waiting thread polls whether the owner is alive, and replaces a dead one. A
   normal exit is noticed in the same way: a process participates to its last instruction.  */

#include "clock/owner.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "clock/raw_call.h"
#include "clock/slots.h"

/* Not 0, because programs use 0 for "never".  */
#define FIRST_MOMENT_NS 1000000000000ull
/* A reading of the clock takes this long, so that a loop which only reads it ends.  */
#define READ_NS 100
/* Between two checks of the owner, in real time.  */
#define POLL_NS 10000000

__thread struct thread_slot *softclock_slot __attribute__ ((tls_model ("initial-exec")));

/* The slot with the earliest wake-up time; of equal ones the next after ORIGIN, and ORIGIN last. */
static struct thread_slot *
first_to_wake (unsigned origin)
{
  struct softclock *shared = softclock_shared;
  struct thread_slot *first = NULL;
  for (unsigned step = 1; step <= shared->slots_used; step++)
    {
      struct thread_slot *slot = &shared->slot[(origin + step) % shared->slots_used];
      if (slot->taken && (!first || slot->wakes_ns < first->wakes_ns))
        first = slot;
    }
  return first;
}

/* Makes the thread that wakes first the owner. Called by the OWNER.  */
static void
pass_on (uint32_t owner, unsigned origin)
{
  struct softclock *shared = softclock_shared;
  struct thread_slot *next = first_to_wake (origin);
  if (!next)
    return;
  if (next->wakes_ns == SOFTCLOCK_NEVER)
    softclock_fail ("every thread waits for another one");
  if (shared->now_ns < next->wakes_ns)
    shared->now_ns = next->wakes_ns;
  if (softclock_number (next) == owner)
    return;
  atomic_store (&shared->owner, softclock_number (next));
  atomic_fetch_add (&next->turn, 1);
  SOFTCLOCK_RAW (SYS_futex, &next->turn, FUTEX_WAKE, 1, 0);
}

/* Takes the clock from the dead OWNER, frees its slot and passes the clock on.  */
static void
replace_dead_owner (uint32_t owner, uint32_t own)
{
  struct softclock *shared = softclock_shared;
  uint32_t dead = owner;
  if (!atomic_compare_exchange_strong (&shared->owner, &owner, own))
    return;
  shared->slot[dead - 1].taken = 0;
  pass_on (own, dead - 1);
}

static void
wait_for_turn (struct thread_slot *slot)
{
  const struct timespec soon = { .tv_nsec = POLL_NS };
  struct softclock *shared = softclock_shared;
  uint32_t own = softclock_number (slot);
  struct patience patience = { 0 };
  for (;;)
    {
      uint32_t turn = atomic_load (&slot->turn);
      uint32_t owner = atomic_load (&shared->owner);
      if (owner == own)
        return;
      if (SOFTCLOCK_RAW (SYS_futex, &slot->turn, FUTEX_WAIT, turn, &soon) != -ETIMEDOUT)
        continue;
      if (owner && !softclock_alive (owner))
        replace_dead_owner (owner, own);
      else
        softclock_keep_patience (&patience);
    }
}

/* One instruction, so that no signal handler comes between. It needs no bus lock, because only the
   owner writes.  */
static uint64_t
fetch_add (_Atomic uint64_t *word, uint64_t more)
{
  __asm__ volatile ("xaddq %0, %1" : "+r"(more), "+m"(*word) : : "memory", "cc");
  return more;
}

uint64_t
softclock_now (void)
{
  struct softclock *shared = softclock_shared;
  /* A signal handler may read the clock while its thread sleeps.  */
  if (softclock_owns ())
    return fetch_add (&shared->now_ns, READ_NS) + READ_NS;
  return atomic_load (&shared->now_ns);
}

void
softclock_sleep_until (uint64_t moment_ns)
{
  int saved = errno;
  uint32_t own = softclock_number (softclock_slot);
  softclock_slot->wakes_ns = moment_ns;
  pass_on (own, own - 1);
  wait_for_turn (softclock_slot);
  errno = saved;
}

uint64_t
softclock_peek (void)
{
  return atomic_load (&softclock_shared->now_ns);
}

bool
softclock_owns (void)
{
  return softclock_slot && softclock_shared
         && atomic_load (&softclock_shared->owner) == softclock_number (softclock_slot);
}

bool
softclock_wait_for_wake (uint64_t moment_ns, const uint64_t *words, unsigned count)
{
  struct thread_slot *slot = softclock_slot;
  if (count <= SOFTCLOCK_WORDS)
    memcpy (slot->words, words, count * sizeof *words);
  slot->waits_for_wake = count;
  softclock_sleep_until (moment_ns);
  bool woken = !slot->waits_for_wake;
  slot->waits_for_wake = 0;
  return woken;
}

static bool
waits_for (const struct thread_slot *slot, uint64_t word)
{
  if (slot->waits_for_wake > SOFTCLOCK_WORDS)
    return true;
  for (unsigned i = 0; i < slot->waits_for_wake; i++)
    if (slot->words[i] == word)
      return true;
  return false;
}

unsigned
softclock_wake_waiters (uint64_t word)
{
  struct softclock *shared = softclock_shared;
  unsigned woken = 0;
  for (unsigned at = 0; at < shared->slots_used; at++)
    if (shared->slot[at].taken && waits_for (&shared->slot[at], word))
      {
        shared->slot[at].waits_for_wake = 0;
        shared->slot[at].wakes_ns = shared->now_ns;
        woken++;
      }
  return woken;
}

struct thread_slot *
softclock_reserve (void)
{
  struct softclock *shared = softclock_shared;
  for (unsigned at = shared->processes; at < SOFTCLOCK_SLOTS; at++)
    if (!shared->slot[at].taken && softclock_lock_slot (at + 1))
      {
        struct thread_slot *slot = &shared->slot[at];
        slot->waiter = 0;
        slot->waits_for_wake = 0;
        slot->wakes_ns = shared->now_ns;
        slot->taken = 1;
        if (shared->slots_used <= at)
          shared->slots_used = at + 1;
        return slot;
      }
  return NULL;
}

void
softclock_take_slot (struct thread_slot *slot)
{
  softclock_slot = slot;
  wait_for_turn (slot);
}

void
softclock_release_slot (struct thread_slot *slot)
{
  struct softclock *shared = softclock_shared;
  uint32_t number = softclock_number (slot);
  if (slot->waiter)
    shared->slot[slot->waiter - 1].wakes_ns = shared->now_ns;
  slot->taken = 0;
  if (slot != softclock_slot)
    return;
  softclock_slot = NULL;
  pass_on (number, number - 1);
}

void
softclock_wait_for_end (struct thread_slot *slot)
{
  slot->waiter = softclock_number (softclock_slot);
  softclock_sleep_until (SOFTCLOCK_NEVER);
}

/* Called once, when the process has its slot. The last process to join starts the clock.  */
void
softclock_arrive (struct thread_slot *slot)
{
  struct softclock *shared = softclock_shared;
  slot->taken = 1;
  if (atomic_fetch_add (&shared->arrived, 1) + 1 == shared->processes)
    {
      shared->slots_used = shared->processes;
      /* A file that was used before may hold a time to continue from.  */
      if (!shared->now_ns)
        shared->now_ns = FIRST_MOMENT_NS;
      atomic_store (&shared->owner, softclock_number (slot));
      pass_on (softclock_number (slot), shared->processes - 1);
    }
  softclock_take_slot (slot);
}
