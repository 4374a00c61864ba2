/* Coming to the clock. SOFTCLOCK=SEAT/PROCESSES:FILE says which of how many processes this one is,
   from 0 on; without it the library does nothing.  */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock/baton.h"
#include "clock/seats.h"

#define PATIENCE_S 30

/* A child has no seat. It must not keep its parent's alive.  */
static void
leave_in_child (void)
{
  softclock_close ();
  softclock_seat = NULL;
}

__attribute__ ((constructor)) static void
come (void)
{
  const char *wish = getenv ("SOFTCLOCK"), *patience = getenv ("SOFTCLOCK_PATIENCE_S");
  if (!wish)
    return;
  uint32_t at, processes;
  int path = 0;
  if (sscanf (wish, "%u/%u:%n", &at, &processes, &path) != 2 || !path || at >= processes
      || processes > SOFTCLOCK_SEATS)
    softclock_give_in ("SOFTCLOCK is not SEAT/PROCESSES:FILE");
  softclock_open (wish + path, patience ? strtoull (patience, NULL, 10) : PATIENCE_S);
  if (!softclock_lock (at + 1))
    softclock_give_in ("the seat that SOFTCLOCK names is taken");
  atomic_store (&softclock_shared->processes, processes);
  pthread_atfork (NULL, NULL, leave_in_child);
  /* What this process starts lives in real time, unless it is given a seat of its own.  */
  unsetenv ("SOFTCLOCK");
  softclock_arrive (&softclock_shared->seat[at]);
}
