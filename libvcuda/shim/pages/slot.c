/* Takes, clears and reclaims slots of the usage page.

   A process holds its slot by an OFD lock on one byte of the page's file. The kernel drops the lock
   when the last copy of the descriptor is closed. So a process that can take the lock of another
   slot knows that the slot's process is dead, without pids, namespaces or a watcher. It clears the
   slot, which gives back the bytes that the dead process held.

   To take a slot a process locks the byte, clears the slot, increments its generation, sets its pid
   and raises slots_used. Then it enters what it already holds, because a program that closes every
   descriptor loses the lock: another process may then take the slot, and the first one finds a pid
   or generation that is not its own and takes another slot.  */

#include "pages/slot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "pages/decisions.h"
#include "pages/pages.h"
#include "pages/slot_file.h"
#include "thread/clock.h"
#include "thread/in_driver.h"
#include "thread/message.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
struct vcuda_own_slot vcuda_own_slot;
vcuda_enter_held *vcuda_slot_enter_held;
static uint64_t last_reclaim_ns;

/* Called with the byte's lock held. If the process is killed here, the next one that takes the lock
   clears the slot again.  */
static void
clear_slot (struct vcuda_usage_slot *slot)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    {
      __atomic_store_n (&slot->held_bytes[gpu], 0, __ATOMIC_SEQ_CST);
      __atomic_store_n (&slot->busy_ns[gpu], 0, __ATOMIC_RELAXED);
      __atomic_store_n (&slot->contexts[gpu], 0, __ATOMIC_RELAXED);
    }
  vcuda_decisions_clear (slot);
  __atomic_store_n (&slot->turn_marks, 0, __ATOMIC_RELAXED);
  __atomic_store_n (&slot->calls_inside, 0, __ATOMIC_SEQ_CST);
  __atomic_store_n (&slot->pid, 0, __ATOMIC_SEQ_CST);
  unsigned at = (unsigned) (slot - vcuda_pages.usage->slot);
  vcuda_slot_set_unsaved (at, VCUDA_UNSAVED_MANAGED, false);
  vcuda_slot_set_unsaved (at, VCUDA_UNSAVED_IPC, false);
  vcuda_slot_set_off (at, false);
}

static bool
is_clear (const struct vcuda_usage_slot *slot)
{
  /* A slot without a pid may hold numbers if a program has overwritten the page.  */
  uint64_t any = __atomic_load_n (&slot->pid, __ATOMIC_SEQ_CST)
                 | __atomic_load_n (&slot->turn_marks, __ATOMIC_RELAXED);
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    any |= __atomic_load_n (&slot->held_bytes[gpu], __ATOMIC_SEQ_CST)
           | __atomic_load_n (&slot->contexts[gpu], __ATOMIC_RELAXED);
  return any == 0 && vcuda_decisions_are_clear (slot);
}

static void
reclaim_locked (void)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  int fd = vcuda_usage_descriptor ();
  if (fd < 0)
    return;
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    {
      struct vcuda_usage_slot *slot = &usage->slot[i];
      if (slot == vcuda_own_slot.slot || is_clear (slot)
          || !vcuda_lock_byte (fd, VCUDA_USAGE_LOCK_BASE + i, F_WRLCK))
        continue;
      clear_slot (slot);
      vcuda_lock_byte (fd, VCUDA_USAGE_LOCK_BASE + i, F_UNLCK);
    }
}

/* Reported once, because the caller's error code cannot name the limit.  */
static void
report_full (void)
{
  static bool reported;
  if (!reported)
    vcuda_report (VCUDA_LINE (VCUDA_GUEST_USAGE,
                              "256 processes of this container use its GPUs; no more can",
                              "end one of them"));
  reported = true;
}

static struct vcuda_usage_slot *
take_locked (void)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  struct vcuda_usage_slot *lost = vcuda_own_slot.slot;
  __atomic_store_n (&vcuda_own_slot.slot, NULL, __ATOMIC_RELEASE);
  reclaim_locked ();
  int fd = vcuda_usage_descriptor ();
  if (fd < 0)
    return NULL;
  /* This process may still hold the lock of its former slot.  */
  if (lost)
    vcuda_lock_byte (fd, VCUDA_USAGE_LOCK_BASE + (lost - usage->slot), F_UNLCK);
  for (unsigned i = 0; i < VCUDA_MAX_PROCESSES; i++)
    {
      struct vcuda_usage_slot *slot = &usage->slot[i];
      if (!vcuda_lock_byte (fd, VCUDA_USAGE_LOCK_BASE + i, F_WRLCK))
        continue;
      clear_slot (slot);
      __atomic_store_n (&vcuda_own_slot.generation,
                        __atomic_add_fetch (&slot->generation, 1, __ATOMIC_SEQ_CST),
                        __ATOMIC_RELAXED);
      __atomic_store_n (&slot->start_time, vcuda_start_time (0), __ATOMIC_RELAXED);
      __atomic_store_n (&slot->pid, (uint32_t) getpid (), __ATOMIC_SEQ_CST);
      /* Before the slot holds a byte, so that no sum misses it.  */
      unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
      while (used < i + 1
             && !__atomic_compare_exchange_n (&usage->slots_used, &used, i + 1, false,
                                              __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
      /* NULL in a constructor that runs before the shim's: nothing is held yet.  */
      if (vcuda_slot_enter_held)
        vcuda_slot_enter_held (slot);
      __atomic_store_n (&vcuda_own_slot.slot, slot, __ATOMIC_RELEASE);
      return slot;
    }
  report_full ();
  return NULL;
}

int
vcuda_slot_of_process (int pid)
{
  const struct vcuda_usage *usage = vcuda_pages.usage;
  uint64_t started = vcuda_start_time (pid);
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; started && i < used && i < VCUDA_MAX_PROCESSES; i++)
    if (__atomic_load_n (&usage->slot[i].pid, __ATOMIC_SEQ_CST) == (uint32_t) pid
        && __atomic_load_n (&usage->slot[i].start_time, __ATOMIC_RELAXED) == started)
      return (int) i;
  return -1;
}

struct vcuda_usage_slot *
vcuda_slot_take (void)
{
  int saved = errno;
  vcuda_lock (&mutex);
  struct vcuda_usage_slot *slot
      = vcuda_slot_is_own (vcuda_own_slot.slot) ? vcuda_own_slot.slot : take_locked ();
  vcuda_unlock (&mutex);
  errno = saved;
  return slot;
}

void
vcuda_slots_reclaim (void)
{
  int saved = errno;
  vcuda_lock (&mutex);
  reclaim_locked ();
  vcuda_unlock (&mutex);
  errno = saved;
}

void
vcuda_slots_reclaim_sometimes (void)
{
  uint64_t now = vcuda_now ();
  uint64_t last = __atomic_load_n (&last_reclaim_ns, __ATOMIC_RELAXED);
  if (!vcuda_thread ()->in_driver && now - last >= 50000000ull
      && __atomic_compare_exchange_n (&last_reclaim_ns, &last, now, false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
    vcuda_slots_reclaim ();
}

static bool
lock_refusal (short type)
{
  return vcuda_lock_byte (vcuda_usage_descriptor (), VCUDA_USAGE_REFUSE_LOCK, type);
}

bool
vcuda_refuse_lock (uint64_t deadline_ns)
{
  uint64_t pause = 50000;
  while (!lock_refusal (F_WRLCK))
    {
      /* The lock's holder may be stopped; a kill frees the lock at once.  */
      if (vcuda_now () >= deadline_ns)
        return false;
      vcuda_sleep_ns (pause);
      pause = pause < 1000000 ? pause * 2 : pause;
    }
  return true;
}

void
vcuda_refuse_unlock (void)
{
  lock_refusal (F_UNLCK);
}

void
vcuda_slot_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
  vcuda_usage_forget ();
  vcuda_own_slot.slot = NULL;
}
