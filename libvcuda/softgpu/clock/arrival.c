/* Joins a process to the clock. SOFTCLOCK=SLOT/PROCESSES:FILE gives its number, from 0 on, and the
   number of processes; without it the library does nothing. SOFTCLOCK_WITHOUT=futex_waitv: the
   process sees a kernel before Linux 5.16, which lacks that call.  */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock/owner.h"
#include "clock/slots.h"

#define PATIENCE_S 30

/* A forked child has no slot, and must not hold the lock of its parent's slot.  */
static void
leave_in_child (void)
{
  softclock_close ();
  softclock_slot = NULL;
}

__attribute__ ((constructor)) static void
join_clock (void)
{
  const char *setting = getenv ("SOFTCLOCK"), *patience = getenv ("SOFTCLOCK_PATIENCE_S");
  if (!setting)
    return;
  uint32_t at, processes;
  int path = 0;
  if (sscanf (setting, "%u/%u:%n", &at, &processes, &path) != 2 || !path || at >= processes
      || processes > SOFTCLOCK_SLOTS)
    softclock_fail ("SOFTCLOCK is not SLOT/PROCESSES:FILE");
  softclock_open (setting + path, patience ? strtoull (patience, NULL, 10) : PATIENCE_S);
  if (!softclock_lock_slot (at + 1))
    softclock_fail ("the slot that SOFTCLOCK names is taken");
  atomic_store (&softclock_shared->processes, processes);
  pthread_atfork (NULL, NULL, leave_in_child);
  const char *without = getenv ("SOFTCLOCK_WITHOUT");
  softclock_lacks_waitv = without && strcmp (without, "futex_waitv") == 0;
  if (without && !softclock_lacks_waitv)
    softclock_fail ("SOFTCLOCK_WITHOUT is not futex_waitv");
  /* Programs that this process starts run in real time, unless they get slots of their own.  */
  unsetenv ("SOFTCLOCK");
  softclock_arrive (&softclock_shared->slot[at]);
}
