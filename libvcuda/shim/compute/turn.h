/* Exclusive turns: while several containers want a GPU, one of them may launch at a time.

   The turn keeper on the host (libvcuda/turns) writes the word `turn` of the limits page. The shim
   marks in its slot of the usage page whether the process may have work in the GPU's queue, and
   whether a thread waits for a turn, and rings the keeper's bell when that has to be acted on.

     a launch     marks BUSY, then reads the word. OPEN, or HELD before turn_until_ns: it goes on.
                  Otherwise it lets the queue drain, replaces BUSY by WANTS, rings, and sleeps until
                  the word changes.
     the keeper   changes a container's word to WAIT, then reads the marks. It gives the turn to
                  another container when no process of this one is BUSY any more.

   So either the launch sees the new word, or the keeper sees BUSY. A wait that finds the queue
   empty clears BUSY. Only launches on the slow path mark and read `until`; a launch that a thread's
   credit settles compares the word (credit.h).

   A keeper that does not answer the bell and has let its lease run out is dead: for a second, and
   twice as long each time, the bucket of GPU time decides alone.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "meter/meter.h"

/* NOW, here and below: a reading of the clock of just now; one serves the whole launch.

   Marks GPU as busy for a launch in STREAM, and makes the thread's credit follow GPU's word.
   Returns whether the queue may have held work before.  */
bool vcuda_turn_mark_busy (int gpu, CUstream stream, uint64_t now);

/* Whether work that is queued now, behind IN_FLIGHT_NS of other work, may begin on GPU. With true,
   launches on credit may follow until the word changes.  */
bool vcuda_turn_allows (int gpu, uint64_t in_flight_ns, uint64_t now);

/* Waits for a turn. QUEUED: work may be in the queue, and is drained before. Called without the
   meter's lock, BUSY being marked; it is marked again at the end.  */
void vcuda_turn_wait (struct meter *meter, CUstream stream, bool queued);

/* Whether launches of several streams of the only thread may overlap on GPU.  */
bool vcuda_turn_overlaps (int gpu);

/* How much GPU time may be in flight before a further launch waits.  */
uint64_t vcuda_turn_most_in_flight (int gpu);

/* Whether the keeper, not the bucket of GPU time, decides now when GPU is used.  */
bool vcuda_turn_is_held (int gpu, uint64_t now);

/* Sleeps for NS, or until the keeper changes GPU's word.  */
void vcuda_turn_sleep (int gpu, uint64_t ns);

/* The work that is queued on GPU will end at about MOMENT.  */
void vcuda_turn_expect (int gpu, uint64_t moment);

/* What a call that waits for the GPU has waited for.  */
enum vcuda_waited
{
  VCUDA_WAITED_EVENT,
  VCUDA_WAITED_STREAM,
  VCUDA_WAITED_CONTEXT,
};

/* Around a call that waits for the queue of GPU, on which the thread launched last.  */
void vcuda_turn_wait_begin (int gpu);
/* REAPED: no measured launch is left. Clears BUSY and returns true where the wait shows that the
   queue is empty.  */
bool vcuda_turn_wait_end (int gpu, enum vcuda_waited waited, CUstream stream, bool reaped);

/* In the child after a fork.  */
void vcuda_turn_forget (void);

/* The thread's credit is prepaid from the bucket where the bucket pays. IN_TURN: from now on the
   keeper's queue pays, or nothing is paid while the thread rests.  */
void vcuda_credit_in_turn (int gpu, bool in_turn);
