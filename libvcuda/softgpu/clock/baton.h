/* A time that several processes share, in which no thread waits for real. See baton.c.  */

#ifndef SOFTCLOCK_BATON_H
#define SOFTCLOCK_BATON_H

#include <stdint.h>

struct seat;

/* The calling thread's; NULL where it takes no part.  */
extern __thread struct seat *softclock_seat __attribute__ ((tls_model ("initial-exec")));

/* Virtual nanoseconds. A look by a thread that takes part takes a little of them.  */
uint64_t softclock_now (void);

/* The calling thread sleeps until then.  */
void softclock_sleep_until (uint64_t moment_ns);

/* The process has come and takes SEAT; returns when all have, and it is its turn.  */
void softclock_arrive (struct seat *seat);

/* A seat for a thread that is about to be made, NULL when all are taken. Its first turn comes when
   its maker sleeps.  */
struct seat *softclock_reserve (void);

/* The calling thread takes SEAT; returns when it is its turn.  */
void softclock_sit_down (struct seat *seat);

/* SEAT's thread ends here, or was never made.  */
void softclock_give_up (struct seat *seat);

/* The calling thread sleeps until SEAT is given up.  */
void softclock_wait_for_end (struct seat *seat);

#endif
