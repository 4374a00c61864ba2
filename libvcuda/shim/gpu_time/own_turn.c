/* The marks of this process, and the lengths of its work and its gaps.  */

#include "gpu_time/own_turn.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gpu_time/credit.h"
#include "pages/slot.h"
#include "thread/clock.h"

/* By this, and a quarter, what a switch seems to cost grows at most.  */
#define SWITCH_STEP_NS 10000

struct vcuda_own_turn vcuda_own_turn[VCUDA_MAX_GPUS]
    = { [0 ... VCUDA_MAX_GPUS - 1] = { .mutex = PTHREAD_MUTEX_INITIALIZER } };

void
vcuda_turn_sleep_while (int gpu, uint32_t word, uint64_t ns)
{
  struct timespec span
      = { .tv_sec = (time_t) (ns / 1000000000ull), .tv_nsec = (long) (ns % 1000000000ull) };
  int saved = errno;
  syscall (SYS_futex, &vcuda_turn_share (gpu)->turn, FUTEX_WAIT, word, &span, NULL, 0);
  errno = saved;
}

void
vcuda_ring (int gpu)
{
  int saved = errno;
  uint32_t *bell = &vcuda_pages.usage->gpu[gpu].bell;
  __atomic_fetch_add (bell, 1, __ATOMIC_SEQ_CST);
  syscall (SYS_futex, bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
  errno = saved;
}

uint32_t
vcuda_own_busy (int gpu)
{
  return __atomic_load_n (&vcuda_own_turn[gpu].marks, __ATOMIC_SEQ_CST) & VCUDA_TURN_BUSY;
}

bool
vcuda_own_is_mixed (int gpu)
{
  return __atomic_load_n (&vcuda_own_turn[gpu].overlaps, __ATOMIC_RELAXED)
         && __atomic_load_n (&vcuda_credit_threads, __ATOMIC_RELAXED) > 1;
}

/* Where every slot is taken, the process has no marks.  */
void
vcuda_own_mark (int gpu, uint32_t marks)
{
  struct vcuda_own_turn *own = &vcuda_own_turn[gpu];
  int shift = gpu * VCUDA_TURN_MARK_BITS;
  if (own->waits && marks & VCUDA_TURN_BUSY)
    marks |= VCUDA_TURN_IN_WAIT;
  if (own->wants)
    marks |= VCUDA_TURN_WANTS;
  if (vcuda_own_is_mixed (gpu))
    marks |= VCUDA_TURN_MIXED;
  __atomic_store_n (&own->marks, marks, __ATOMIC_SEQ_CST);
  struct vcuda_usage_slot *slot = vcuda_slot ();
  if (!slot)
    return;
  uint64_t all = __atomic_load_n (&slot->turn_marks, __ATOMIC_RELAXED), changed;
  do
    changed = (all & ~(15ull << shift)) | (uint64_t) marks << shift;
  while (!__atomic_compare_exchange_n (&slot->turn_marks, &all, changed, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED));
}

static uint64_t
mean (uint64_t before, uint64_t ns)
{
  ns = ns < VCUDA_LONGEST_GAP_NS ? ns : VCUDA_LONGEST_GAP_NS;
  return before - before / 4 + ns / 4;
}

void
vcuda_own_begin (int gpu, CUstream stream, uint64_t now)
{
  struct vcuda_own_turn *own = &vcuda_own_turn[gpu];
  uint32_t word = vcuda_turn_word (gpu);
  /* A wait for a turn, which follows a launch that found none, is no gap.  */
  if (own->rested_ns > own->began_ns && now > own->rested_ns)
    own->gap_ns = mean (own->gap_ns, now - own->rested_ns);
  own->begins_turn = word != own->began_word;
  own->began_word = word;
  /* Another thread may have found the queue empty since NOW was read.  */
  own->began_ns = now > own->rested_ns ? now : own->rested_ns;
  own->stream = stream;
  own->several = false;
  vcuda_own_mark (gpu, VCUDA_TURN_BUSY);
  __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].work_begun, 1, __ATOMIC_RELAXED);
}

/* The least of what was seen lately counts: where the work differs, it may be late by more.  */
void
vcuda_own_learn_switch (int gpu, uint64_t late)
{
  uint32_t *learnt = &vcuda_pages.usage->gpu[gpu].switch_ns;
  uint64_t most = __atomic_load_n (learnt, __ATOMIC_RELAXED);
  most += most / 4 + SWITCH_STEP_NS;
  most = most < VCUDA_LONGEST_GAP_NS ? most : VCUDA_LONGEST_GAP_NS;
  __atomic_store_n (learnt, (uint32_t) (late < most ? late : most), __ATOMIC_RELAXED);
}

void
vcuda_own_rest (int gpu)
{
  struct vcuda_own_turn *own = &vcuda_own_turn[gpu];
  uint64_t now = vcuda_now (), span = now - own->began_ns;
  if (!own->begins_turn)
    own->span_ns = mean (own->span_ns, span);
  else if ((own->began_word & VCUDA_TURN_STATE) == VCUDA_TURN_HELD)
    vcuda_own_learn_switch (gpu, span > own->span_ns ? span - own->span_ns : 0);
  __atomic_store_n (&own->rested_ns, now, __ATOMIC_RELAXED);
}

/* The process ends, and its queues with it.  */
__attribute__ ((destructor)) static void
leave (void)
{
  /* A child that was made by the system call alone has its parent's slot.  */
  struct vcuda_usage_slot *slot = vcuda_own_slot.slot;
  if (!slot || slot->pid != (uint32_t) getpid ())
    return;
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    /* Without the lock: a signal handler may end the process while its thread has it.  */
    if (vcuda_own_turn[gpu].marks)
      {
        vcuda_own_turn[gpu].waits = vcuda_own_turn[gpu].wants = 0;
        vcuda_own_mark (gpu, 0);
        vcuda_ring (gpu);
      }
}

void
vcuda_own_forget (void)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    vcuda_own_turn[gpu] = (struct vcuda_own_turn){ .mutex = PTHREAD_MUTEX_INITIALIZER };
}
