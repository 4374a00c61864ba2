/* The clock's file, its seats, and which of them live.  */

#ifndef SOFTCLOCK_SEATS_H
#define SOFTCLOCK_SEATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SOFTCLOCK_SEATS 256

struct seat
{
  _Atomic uint32_t turn; /* grows with each hand-over to this seat: its thread sleeps on it */
  uint32_t taken;
  uint64_t wakes_ns;
  uint32_t waiter; /* number of the seat that waits for this thread to end; 0: none */
  uint32_t padding;
};

/* All zeros is a clock that no process has come to. Once it runs only the holder of the baton
   writes; killed between any two writes, it leaves what the next one can go on with. Seats are
   numbered from 1.  */
struct softclock
{
  _Atomic uint32_t processes; /* that take part, each on the seat that it was given */
  _Atomic uint32_t arrived;
  _Atomic uint32_t holder; /* of the baton; 0: not all have come */
  uint32_t seats_used;     /* seats from here on were never taken; only grows */
  _Atomic uint64_t now_ns;
  struct seat seat[SOFTCLOCK_SEATS];
};

/* NULL where the process takes no part.  */
extern struct softclock *softclock_shared;

static inline uint32_t
softclock_number (const struct seat *seat)
{
  return (uint32_t) (seat - softclock_shared->seat) + 1;
}

/* Maps the clock's FILE, which is made where it is missing. Nothing may move for PATIENCE_S.  */
void softclock_open (const char *path, uint64_t patience_s);

/* This process takes part no more.  */
void softclock_close (void);

/* This process holds the seat from now to its end. False: another one does.  */
bool softclock_lock (uint32_t number);

bool softclock_mine (uint32_t number);
bool softclock_alive (uint32_t number);

/* Ends the process with one line when nothing has moved for too long, in real time. Start with
   zeros, call again and again.  */
struct patience
{
  uint64_t since_ns, now_ns;
  uint32_t holder;
};
void softclock_keep_patience (struct patience *patience);

/* Ends the process with one line.  */
void __attribute__ ((noreturn)) softclock_give_in (const char *why);

#endif
