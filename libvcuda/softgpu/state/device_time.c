/* The device's time.

   Nothing runs in the background. Each process's queue on a GPU is a backlog of GPU time. What the
   device did is computed afterwards, by the next process that looks: processes with a backlog get
   turns of slice_ns, round robin, and a process with an empty queue gives up the rest of its turn.
   The outcome depends on when work was submitted, never on when a thread woke. So throughput is
   exact on a slow machine, and a killed process blocks no other.

   Within a process commands run in the order in which they were submitted, whatever their stream:
   that satisfies every order which streams and events may ask for.  */

#include "state/device_time.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* While others are at work a waiter looks again this often: one of them may have died.  */
#define LOOK_AGAIN_NS 10000000ull

uint64_t
softgpu_now (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (uint64_t) now.tv_sec * 1000000000ull + (uint64_t) now.tv_nsec;
}

static uint64_t
backlog_of (const struct softgpu_state *state, unsigned gpu, unsigned slot)
{
  const struct softgpu_slot_gpu *queue = &state->slot[slot].gpu[gpu];
  return queue->submitted_ns - queue->served_ns;
}

/* The first backlogged slot after AFTER, going round; SOFTGPU_MAX_SLOTS when there is none.  */
static unsigned
next_in_turn (const uint64_t *backlogged, unsigned after)
{
  enum
  {
    WORDS = SOFTGPU_MAX_SLOTS / 64
  };
  unsigned first = (after + 1) % SOFTGPU_MAX_SLOTS;
  for (unsigned step = 0; step <= WORDS; step++)
    {
      unsigned word = (first / 64 + step) % WORDS;
      uint64_t bits = backlogged[word];
      if (step == 0)
        bits &= ~0ull << first % 64;
      else if (step == WORDS)
        bits &= ~(~0ull << first % 64);
      if (bits)
        return word * 64 + (unsigned) __builtin_ctzll (bits);
    }
  return SOFTGPU_MAX_SLOTS;
}

static void
count_busy (struct softgpu_period *period, uint64_t from, uint64_t ran)
{
  while (ran)
    {
      uint32_t number = (uint32_t) (from / SOFTGPU_PERIOD_NS);
      uint64_t here = SOFTGPU_PERIOD_NS - from % SOFTGPU_PERIOD_NS;
      if (here > ran)
        here = ran;
      struct softgpu_period *entry = &period[number % SOFTGPU_PERIODS];
      if (entry->number != number)
        *entry = (struct softgpu_period){ .number = number };
      entry->busy_ns += (uint32_t) here;
      from += here;
      ran -= here;
    }
}

uint64_t
softgpu_busy_in_last_second (const struct softgpu_period *period, uint64_t now)
{
  uint32_t current = (uint32_t) (now / SOFTGPU_PERIOD_NS);
  uint64_t busy = 0;
  for (unsigned i = 0; i < SOFTGPU_PERIODS; i++)
    if (period[i].number < current && period[i].number + 10 >= current)
      busy += period[i].busy_ns;
  return busy;
}

static void
pass_marks (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t served_before)
{
  struct softgpu_slot_gpu *queue = &state->slot[slot].gpu[gpu];
  while (queue->marks_passed < queue->marks_made)
    {
      struct softgpu_mark *mark = softgpu_mark_at (state, gpu, slot, queue->marks_passed);
      if (mark->target_ns > queue->served_ns)
        return;
      uint64_t into = mark->target_ns > served_before ? mark->target_ns - served_before : 0;
      mark->time_ns = state->gpu[gpu].clock_ns + into;
      mark->waited_ns = queue->waited_ns;
      queue->marks_passed++;
    }
}

/* The device serves SLOT for RAN nanoseconds from its clock on.  */
static void
serve (struct softgpu_state *state, unsigned gpu, unsigned slot, uint64_t ran)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  struct softgpu_slot_gpu *queue = &state->slot[slot].gpu[gpu];
  uint64_t before = queue->served_ns;
  queue->served_ns += ran;
  pass_marks (state, gpu, slot, before);
  count_busy (device->period, device->clock_ns, ran);
  count_busy (queue->period, device->clock_ns, ran);
  /* A process killed while it submitted may have left a backlog without its bit.  */
  device->backlogged[slot / 64] |= 1ull << slot % 64;
  for (unsigned other = next_in_turn (device->backlogged, slot); other != slot;
       other = next_in_turn (device->backlogged, other))
    state->slot[other].gpu[gpu].waited_ns += ran;
  device->busy_ns += ran;
  device->clock_ns += ran;
  device->slice_left_ns -= ran < device->slice_left_ns ? ran : device->slice_left_ns;
  if (queue->served_ns == queue->submitted_ns)
    device->backlogged[slot / 64] &= ~(1ull << slot % 64);
}

void
softgpu_advance (struct softgpu_state *state, unsigned gpu, uint64_t now)
{
  struct softgpu_gpu *device = &state->gpu[gpu];
  while (device->clock_ns < now)
    {
      unsigned slot = device->current;
      uint64_t mine = backlog_of (state, gpu, slot);
      if (!mine || !device->slice_left_ns)
        {
          slot = next_in_turn (device->backlogged, slot);
          if (slot == SOFTGPU_MAX_SLOTS)
            {
              device->clock_ns = now;
              return;
            }
          device->current = slot;
          device->slice_left_ns = state->slice_ns;
          mine = backlog_of (state, gpu, slot);
        }
      uint64_t ran = now - device->clock_ns;
      if (ran > mine)
        ran = mine;
      /* A turn ends only if another process has work.  */
      if (ran > device->slice_left_ns && next_in_turn (device->backlogged, slot) != slot)
        ran = device->slice_left_ns;
      serve (state, gpu, slot, ran);
    }
}

uint64_t
softgpu_submit (struct attachment *tie, unsigned gpu, uint64_t duration_ns)
{
  struct softgpu_gpu *device = &tie->state->gpu[gpu];
  struct softgpu_slot_gpu *queue = &softgpu_own_slot (tie)->gpu[gpu];
  queue->submitted_ns += duration_ns;
  if (queue->submitted_ns != queue->served_ns)
    device->backlogged[tie->slot / 64] |= 1ull << tie->slot % 64;
  return queue->submitted_ns;
}

bool
softgpu_served (struct attachment *tie, unsigned gpu, uint64_t target_ns)
{
  return softgpu_own_slot (tie)->gpu[gpu].served_ns >= target_ns;
}

/* When TARGET_NS will be served if nothing else is submitted: never later than it will be.  */
static uint64_t
expected_at (struct attachment *tie, unsigned gpu, uint64_t target_ns)
{
  const struct softgpu_gpu *device = &tie->state->gpu[gpu];
  uint64_t need = target_ns - softgpu_own_slot (tie)->gpu[gpu].served_ns;
  uint64_t clock = device->clock_ns;
  if (next_in_turn (device->backlogged, tie->slot) == tie->slot)
    return clock + need;

  uint64_t remaining[SOFTGPU_MAX_SLOTS];
  for (unsigned slot = 0; slot < tie->state->slots_used; slot++)
    remaining[slot] = backlog_of (tie->state, gpu, slot);
  unsigned slot = device->current;
  uint64_t left = device->slice_left_ns;
  const uint64_t horizon = clock + LOOK_AGAIN_NS;
  while (clock < horizon)
    {
      uint64_t run = remaining[slot] < left ? remaining[slot] : left;
      if (slot == tie->slot)
        {
          if (need <= run)
            return clock + need;
          need -= run;
        }
      clock += run;
      remaining[slot] -= run;
      do
        slot = next_in_turn (device->backlogged, slot);
      while (!remaining[slot]); /* ends: this process's own work remains */
      left = tie->state->slice_ns;
    }
  return horizon;
}

void
softgpu_wait (struct attachment *tie, unsigned gpu, uint64_t target_ns)
{
  for (;;)
    {
      softgpu_lock (tie);
      uint64_t now = softgpu_now ();
      softgpu_advance (tie->state, gpu, now);
      if (softgpu_served (tie, gpu, target_ns))
        break;
      if (now - tie->state->reaped_ns > LOOK_AGAIN_NS)
        {
          tie->state->reaped_ns = now;
          softgpu_reap (tie);
        }
      uint64_t then = expected_at (tie, gpu, target_ns);
      softgpu_unlock (tie);
      struct timespec moment
          = { .tv_sec = (time_t) (then / 1000000000ull), .tv_nsec = (long) (then % 1000000000ull) };
      clock_nanosleep (CLOCK_MONOTONIC, TIMER_ABSTIME, &moment, NULL);
    }
  softgpu_unlock (tie);
}
