/* The clock's file, its thread slots, and which of them are alive.  */

#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SOFTCLOCK_SLOTS 256
#define SOFTCLOCK_WORDS 28

struct thread_slot
{
  _Atomic uint32_t turn; /* futex of the slot's thread; grows when it becomes the owner */
  uint32_t taken;
  uint64_t wakes_ns;
  uint32_t waiter;         /* number of the slot that waits for this thread to end; 0: none */
  uint32_t waits_for_wake; /* on so many futexes */
  uint64_t words[SOFTCLOCK_WORDS]; /* these; see softclock_word */
};

/* All zeros is a clock that no process has joined. Once it runs, only the clock's owner writes;
   killed between any two writes, it leaves a state that the next owner can continue with. Slots
   are numbered from 1.  */
struct softclock
{
  _Atomic uint32_t processes; /* that participate, each in the slot that it was given */
  _Atomic uint32_t arrived;
  _Atomic uint32_t owner; /* number of the owner's slot; 0: not all processes have joined */
  uint32_t slots_used;    /* slots from here on were never taken; only grows */
  _Atomic uint64_t now_ns;
  struct thread_slot slot[SOFTCLOCK_SLOTS];
};

/* NULL: the process does not participate.  */
extern struct softclock *softclock_shared;

static inline uint32_t
softclock_number (const struct thread_slot *slot)
{
  return (uint32_t) (slot - softclock_shared->slot) + 1;
}

/* Maps the clock's file at PATH and creates it where it is missing. Without progress for
   PATIENCE_S, in real time, the process ends.  */
void softclock_open (const char *path, uint64_t patience_s);

/* Ends the participation of this process.  */
void softclock_close (void);

/* This process holds the slot until it ends. False: another process holds it.  */
bool softclock_lock_slot (uint32_t number);

bool softclock_mine (uint32_t number);
bool softclock_alive (uint32_t number);

/* Ends the process with one line if owner and time have not changed for too long, in real time. The
   caller polls it, with PATIENCE all zeros at first.  */
struct patience
{
  uint64_t since_ns, now_ns;
  uint32_t owner;
};
void softclock_keep_patience (struct patience *patience);

/* Ends the process with one line.  */
void __attribute__ ((noreturn)) softclock_fail (const char *why);
