/* A virtual time that several processes share; sleeping takes no real time. See owner.c.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

struct thread_slot;

/* The calling thread's slot; NULL: it does not participate.  */
extern __thread struct thread_slot *softclock_slot __attribute__ ((tls_model ("initial-exec")));

/* Virtual nanoseconds. A reading by a participating thread advances them a little.  */
uint64_t softclock_now (void);

/* The same, without a reading.  */
uint64_t softclock_peek (void);

/* Whether the calling thread participates and it is its turn. In a signal handler of a sleeping
   thread it is not.  */
bool softclock_owns (void);

/* Whether the process sees a kernel that has no futex_waitv.  */
extern bool softclock_lacks_waitv;

#define SOFTCLOCK_NEVER UINT64_MAX

/* The calling thread sleeps until MOMENT_NS, or until a participant wakes one of the COUNT WORDS;
   false: none did. Of more than SOFTCLOCK_WORDS any word's wake counts.  */
bool softclock_wait_for_wake (uint64_t moment_ns, const uint64_t *words, unsigned count);

/* Wakes every slot that waits for WORD; returns how many.  */
unsigned softclock_wake_waiters (uint64_t word);

/* The same number for the same futex word in every process: see words.c.  */
uint64_t softclock_word (uintptr_t address);

/* The calling thread sleeps until MOMENT_NS.  */
void softclock_sleep_until (uint64_t moment_ns);

/* The process joins and takes SLOT; returns when all have joined, and it is its turn.  */
void softclock_arrive (struct thread_slot *slot);

/* A slot for a thread that is about to be created; NULL when all are taken. Its first turn comes
   when its creator sleeps.  */
struct thread_slot *softclock_reserve (void);

/* The calling thread takes SLOT; returns when it is its turn.  */
void softclock_take_slot (struct thread_slot *slot);

/* Frees SLOT: its thread ends here, or was never created.  */
void softclock_release_slot (struct thread_slot *slot);

/* The calling thread sleeps until SLOT is released.  */
void softclock_wait_for_end (struct thread_slot *slot);
