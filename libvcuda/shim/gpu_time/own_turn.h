/* What this process says of its use of each GPU, and what it learns of that. See turn.h.

   Calls without another word need the mutex.  */

#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "pages/pages.h"
#include "real.h"

#define VCUDA_LONGEST_GAP_NS 5000000ull

struct vcuda_own_turn
{
  pthread_mutex_t mutex;
  uint32_t marks;          /* as in the slot */
  uint32_t waits, wants;   /* threads that wait for the queue, and for a turn */
  uint32_t launches;       /* on the slow path */
  CUstream stream;         /* of the first launch since the queue was empty */
  bool several;            /* launches since then went to other streams too */
  bool overlaps;           /* launches went to several streams at some time */
  uint64_t rested_ns;      /* when the queue was last found empty */
  uint64_t gap_ns;         /* how long it usually stays empty */
  uint64_t began_ns;       /* when it was last found filled */
  uint32_t began_word;     /* the turn's word then */
  bool begins_turn;        /* the first time in this turn */
  uint64_t span_ns;        /* how long it usually stays filled, but for that first time */
  uint64_t alone_until_ns; /* the keeper counts as dead until then */
  uint64_t alone_ns;       /* how long it counted as dead last */
};

extern struct vcuda_own_turn vcuda_own_turn[VCUDA_MAX_GPUS];

/* What the keeper wrote of GPU; without the mutex.  */
static inline const struct vcuda_limits_gpu *
vcuda_turn_share (int gpu)
{
  return &vcuda_pages.limits->gpu[gpu];
}

static inline uint32_t
vcuda_turn_word (int gpu)
{
  return __atomic_load_n (&vcuda_turn_share (gpu)->turn, __ATOMIC_SEQ_CST);
}

static inline uint32_t
vcuda_turn_state (int gpu)
{
  return vcuda_turn_word (gpu) & VCUDA_TURN_STATE;
}

/* A lease that ends far from now was made by another clock: in a time namespace of the container's
   there are no turns. Without the mutex.  */
static inline bool
vcuda_keeper_lives (int gpu, uint64_t now)
{
  uint64_t lease = __atomic_load_n (&vcuda_turn_share (gpu)->turn_lease_ns, __ATOMIC_RELAXED);
  return lease - now <= VCUDA_LONGEST_LEASE_NS;
}

/* Sleeps while GPU's word is WORD, at most NS; without the mutex.  */
void vcuda_turn_sleep_while (int gpu, uint32_t word, uint64_t ns);

/* Has the turn keeper, which sleeps on a word of the usage page for each GPU, read what this
   container says of GPU; without the mutex.  */
void vcuda_ring (int gpu);

/* BUSY or 0; without the mutex.  */
uint32_t vcuda_own_busy (int gpu);

/* Whether threads launch into several streams; without the mutex.  */
bool vcuda_own_is_mixed (int gpu);

/* MARKS: BUSY or 0; those of waiting threads are added.  */
void vcuda_own_mark (int gpu, uint32_t marks);

/* The queue was empty, and a launch in STREAM follows at NOW.  */
void vcuda_own_begin (int gpu, CUstream stream, uint64_t now);

/* The queue was found empty; BUSY is not cleared yet.  */
void vcuda_own_rest (int gpu);

/* The first work of a turn took LATE longer than later work: what a switch of the GPU costs.
   Without the mutex.  */
void vcuda_own_learn_switch (int gpu, uint64_t late);

/* In the child after a fork, without the mutex.  */
void vcuda_own_forget (void);
