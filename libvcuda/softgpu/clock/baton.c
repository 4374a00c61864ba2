/* The virtual clock: which thread runs, and what time it is.

   Every thread that takes part has a seat in a file that all its processes map. One of them at a
   time holds the baton and runs. A thread that sleeps writes down when it wants to wake, and hands
   the baton to the one that wakes first; that moment is the time now. So time passes only by
   sleeping and, a little, by looking at the clock, and the course of events is the same on every
   machine, however busy it is. None runs before all processes have come.

   A seat's life is an OFD lock on a byte of the file, which the kernel drops when the process ends.
   A waiting thread looks now and then whether the holder lives, and goes on in the place of a dead
   one. An ordinary end is noticed in no other way: a process takes part to its last instruction. */

#include "clock/baton.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "clock/seats.h"

/* Not 0, which programs take for "never".  */
#define FIRST_MOMENT_NS 1000000000000ull
/* What a look at the clock takes: a loop that only looks comes to an end.  */
#define LOOK_NS 100
#define NEVER UINT64_MAX
/* In real time.  */
#define LOOK_AGAIN_NS 2000000

__thread struct seat *softclock_seat __attribute__ ((tls_model ("initial-exec")));

/* Of several that wake at once it is the next one after ORIGIN, and ORIGIN last.  */
static struct seat *
first_to_wake (unsigned origin)
{
  struct softclock *shared = softclock_shared;
  struct seat *first = NULL;
  for (unsigned step = 1; step <= shared->seats_used; step++)
    {
      struct seat *seat = &shared->seat[(origin + step) % shared->seats_used];
      if (seat->taken && (!first || seat->wakes_ns < first->wakes_ns))
        first = seat;
    }
  return first;
}

/* The holder of the baton gives it to the thread that comes after ORIGIN in time.  */
static void
hand_over (uint32_t holder, unsigned origin)
{
  struct softclock *shared = softclock_shared;
  struct seat *next = first_to_wake (origin);
  if (!next)
    return;
  if (next->wakes_ns == NEVER)
    softclock_give_in ("every thread waits for another to end");
  if (shared->now_ns < next->wakes_ns)
    shared->now_ns = next->wakes_ns;
  if (softclock_number (next) == holder)
    return;
  atomic_store (&shared->holder, softclock_number (next));
  atomic_fetch_add (&next->turn, 1);
  syscall (SYS_futex, &next->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Goes on in the place of the dead HOLDER.  */
static void
succeed (uint32_t holder, uint32_t own)
{
  struct softclock *shared = softclock_shared;
  uint32_t dead = holder;
  if (!atomic_compare_exchange_strong (&shared->holder, &holder, own))
    return;
  shared->seat[dead - 1].taken = 0;
  hand_over (own, dead - 1);
}

static void
wait_for_turn (struct seat *seat)
{
  const struct timespec soon = { .tv_nsec = LOOK_AGAIN_NS };
  struct softclock *shared = softclock_shared;
  uint32_t own = softclock_number (seat);
  struct patience patience = { 0 };
  for (;;)
    {
      uint32_t turn = atomic_load (&seat->turn);
      uint32_t holder = atomic_load (&shared->holder);
      if (holder == own)
        return;
      if (syscall (SYS_futex, &seat->turn, FUTEX_WAIT, turn, &soon, NULL, 0) == 0
          || errno != ETIMEDOUT)
        continue;
      if (holder && !softclock_alive (holder))
        succeed (holder, own);
      else
        softclock_keep_patience (&patience);
    }
}

uint64_t
softclock_now (void)
{
  struct softclock *shared = softclock_shared;
  /* A signal's handler may look while its thread sleeps.  */
  if (softclock_seat && atomic_load (&shared->holder) == softclock_number (softclock_seat))
    return atomic_fetch_add (&shared->now_ns, LOOK_NS) + LOOK_NS;
  return atomic_load (&shared->now_ns);
}

void
softclock_sleep_until (uint64_t moment_ns)
{
  int saved = errno;
  uint32_t own = softclock_number (softclock_seat);
  softclock_seat->wakes_ns = moment_ns;
  hand_over (own, own - 1);
  wait_for_turn (softclock_seat);
  errno = saved;
}

struct seat *
softclock_reserve (void)
{
  struct softclock *shared = softclock_shared;
  for (unsigned at = shared->processes; at < SOFTCLOCK_SEATS; at++)
    if (!shared->seat[at].taken && softclock_lock (at + 1))
      {
        struct seat *seat = &shared->seat[at];
        seat->waiter = 0;
        seat->wakes_ns = shared->now_ns;
        seat->taken = 1;
        if (shared->seats_used <= at)
          shared->seats_used = at + 1;
        return seat;
      }
  return NULL;
}

void
softclock_sit_down (struct seat *seat)
{
  softclock_seat = seat;
  wait_for_turn (seat);
}

void
softclock_give_up (struct seat *seat)
{
  struct softclock *shared = softclock_shared;
  uint32_t number = softclock_number (seat);
  if (seat->waiter)
    shared->seat[seat->waiter - 1].wakes_ns = shared->now_ns;
  seat->taken = 0;
  if (seat != softclock_seat)
    return;
  softclock_seat = NULL;
  hand_over (number, number - 1);
}

void
softclock_wait_for_end (struct seat *seat)
{
  seat->waiter = softclock_number (softclock_seat);
  softclock_sleep_until (NEVER);
}

/* Called once, when the process has its seat. The last to come starts the clock.  */
void
softclock_arrive (struct seat *seat)
{
  struct softclock *shared = softclock_shared;
  seat->taken = 1;
  if (atomic_fetch_add (&shared->arrived, 1) + 1 == shared->processes)
    {
      shared->seats_used = shared->processes;
      /* A file that was used before may hold the moment to go on from.  */
      if (!shared->now_ns)
        shared->now_ns = FIRST_MOMENT_NS;
      atomic_store (&shared->holder, softclock_number (seat));
      hand_over (softclock_number (seat), shared->processes - 1);
    }
  softclock_sit_down (seat);
}
