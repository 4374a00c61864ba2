/* Takes part in exclusive turns: marks, waits and rings. The protocol is in turn.h.  */

#include "compute/turn.h"

#include "gpu_time/credit.h"
#include "gpu_time/own_turn.h"
#include "gpu_time/time_bucket.h"
#include "meter/drain.h"
#include "meter/meters.h"
#include "pages/suspended.h"
#include "thread/clock.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

/* A program that usually leaves the GPU idle for longer than this gives its turn on at once.  */
#define GRACE_NS 200000ull
/* An answer to the bell takes microseconds, on a busy host milliseconds.  */
#define PATIENCE_NS 250000000ull
/* How long a keeper that did not answer counts as dead; each time twice as long.  */
#define WITHOUT_KEEPER_NS 1000000000ull
#define LONGEST_WITHOUT_KEEPER_NS 64000000000ull
/* Queued ahead in a turn of one stream: enough to keep the GPU busy, little enough to end the turn
   in time.  */
#define MOST_AHEAD_NS 1000000ull
/* Of several streams, or without turns where a neighbour may begin at any moment.  */
#define MOST_OPEN_NS 4000000ull
#define MOST_IN_FLIGHT_NS 20000000ull
/* Under MPS no neighbour waits for it.  */
#define MOST_UNDER_MPS_NS 100000000ull

static const uint32_t no_word;
const char *vcuda_turn_base = (const char *) &no_word;

void
vcuda_turn_sleep (int gpu, uint64_t ns)
{
  uint32_t word = vcuda_turn_word (gpu);
  if ((word & VCUDA_TURN_STATE) == VCUDA_TURN_NONE)
    vcuda_sleep_ns (ns);
  else if (word == vcuda_thread ()->credit.turn)
    vcuda_turn_sleep_while (gpu, word, ns);
}

bool
vcuda_turn_mark_busy (int gpu, CUstream stream, uint64_t now)
{
  struct vcuda_own_turn *turn = &vcuda_own_turn[gpu];
  __atomic_store_n (&vcuda_turn_base, (const char *) vcuda_pages.limits, __ATOMIC_RELAXED);
  vcuda_thread ()->credit.turn_offset = (uint32_t) ((const char *) &vcuda_turn_share (gpu)->turn
                                                    - (const char *) vcuda_pages.limits);
  vcuda_lock (&turn->mutex);
  bool before = vcuda_own_busy (gpu);
  __atomic_fetch_add (&turn->launches, 1, __ATOMIC_SEQ_CST);
  if (!before)
    vcuda_own_begin (gpu, stream, now);
  else if (turn->stream != stream)
    {
      turn->several = true;
      __atomic_store_n (&turn->overlaps, true, __ATOMIC_RELAXED);
    }
  /* The keeper then ends the time without turns.  */
  bool rings = vcuda_own_is_mixed (gpu) && !(turn->marks & VCUDA_TURN_MIXED);
  if (rings)
    vcuda_own_mark (gpu, VCUDA_TURN_BUSY);
  vcuda_unlock (&turn->mutex);
  if (rings)
    vcuda_ring (gpu);
  return before;
}

/* Launches of several streams run at once and end together: what seems to be in flight takes less,
   and keeps the GPU busy for less time.  */
static bool
has_streams (int gpu)
{
  return __atomic_load_n (&vcuda_own_turn[gpu].overlaps, __ATOMIC_RELAXED);
}

bool
vcuda_turn_allows (int gpu, uint64_t in_flight_ns, uint64_t now)
{
  uint32_t word = vcuda_turn_word (gpu), state = word & VCUDA_TURN_STATE;
  bool allowed = state == VCUDA_TURN_NONE || state == VCUDA_TURN_OPEN;
  if (!allowed)
    {
      uint64_t until = __atomic_load_n (&vcuda_turn_share (gpu)->turn_until_ns, __ATOMIC_RELAXED);
      if (in_flight_ns > MOST_AHEAD_NS && has_streams (gpu))
        in_flight_ns = MOST_AHEAD_NS;
      allowed = (state == VCUDA_TURN_HELD && now + in_flight_ns < until)
                || now < __atomic_load_n (&vcuda_own_turn[gpu].alone_until_ns, __ATOMIC_RELAXED)
                || vcuda_thread ()->credit.skips_turn;
    }
  if (allowed)
    vcuda_thread ()->credit.turn = word;
  return allowed;
}

static void
go_without_keeper (int gpu, uint64_t now)
{
  uint64_t *alone = &vcuda_own_turn[gpu].alone_ns;
  uint64_t ns = 2 * __atomic_load_n (alone, __ATOMIC_RELAXED);
  ns = ns > WITHOUT_KEEPER_NS ? ns : WITHOUT_KEEPER_NS;
  ns = ns < LONGEST_WITHOUT_KEEPER_NS ? ns : LONGEST_WITHOUT_KEEPER_NS;
  __atomic_store_n (alone, ns, __ATOMIC_RELAXED);
  __atomic_store_n (&vcuda_own_turn[gpu].alone_until_ns, now + ns, __ATOMIC_RELAXED);
}

/* The marks may have been lost: the program closed the page's descriptor, or the page was cut.  */
static void
repeat_marks (int gpu)
{
  vcuda_lock (&vcuda_own_turn[gpu].mutex);
  vcuda_own_mark (gpu, vcuda_own_busy (gpu));
  vcuda_unlock (&vcuda_own_turn[gpu].mutex);
  vcuda_ring (gpu);
}

/* Whether the container had work to the end of its last turn. Otherwise it waits for other
   containers, not for its share.  */
static bool
has_used_turn (int gpu, bool queued)
{
  uint64_t until = __atomic_load_n (&vcuda_turn_share (gpu)->turn_until_ns, __ATOMIC_RELAXED);
  uint64_t rested = __atomic_load_n (&vcuda_own_turn[gpu].rested_ns, __ATOMIC_RELAXED);
  return queued || vcuda_turn_state (gpu) == VCUDA_TURN_HELD || rested - until < PATIENCE_NS;
}

/* Sleeps until the keeper gives a turn, or counts as dead. QUEUED: until now its queue held work.
 */
static void
sleep_until_allowed (int gpu, bool queued)
{
  uint64_t rang = vcuda_now (), since = rang;
  bool used_turn = has_used_turn (gpu, queued);
  vcuda_ring (gpu);
  for (;;)
    {
      uint32_t word = vcuda_turn_word (gpu);
      if (vcuda_turn_allows (gpu, 0, vcuda_now ()))
        break;
      if (vcuda_is_suspended ())
        {
          /* It has no turn until it is awake.  */
          vcuda_wait_until_awake ();
          repeat_marks (gpu);
          rang = since = vcuda_now ();
          continue;
        }
      vcuda_turn_sleep_while (gpu, word, PATIENCE_NS);
      uint64_t now = vcuda_now ();
      /* Updated at each pause: the host sees from it which containers want more than they have.  */
      if (used_turn)
        __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].throttled_ns, now - since,
                            __ATOMIC_RELAXED);
      if (now - since >= PATIENCE_NS)
        repeat_marks (gpu);
      since = now;
      if (now - rang >= PATIENCE_NS && !vcuda_keeper_lives (gpu, now))
        {
          go_without_keeper (gpu, now);
          return;
        }
    }
  if (vcuda_turn_state (gpu) != VCUDA_TURN_WAIT)
    __atomic_store_n (&vcuda_own_turn[gpu].alone_ns, 0, __ATOMIC_RELAXED);
}

/* Lets the queue drain; the keeper waits for as long as it takes. False: it does not.  */
static bool
drain (struct meter *meter, CUstream stream)
{
  int gpu = meter->gpu;
  struct vcuda_own_turn *turn = &vcuda_own_turn[gpu];
  vcuda_lock (&turn->mutex);
  turn->waits++;
  vcuda_own_mark (gpu, vcuda_own_busy (gpu));
  vcuda_unlock (&turn->mutex);
  bool done = vcuda_drain (meter, stream);
  vcuda_lock (&turn->mutex);
  turn->waits--;
  if (!done)
    vcuda_own_mark (gpu, vcuda_own_busy (gpu));
  vcuda_unlock (&turn->mutex);
  return done;
}

void
vcuda_turn_wait (struct meter *meter, CUstream stream, bool queued)
{
  int gpu = meter->gpu;
  struct vcuda_own_turn *turn = &vcuda_own_turn[gpu];
  for (;;)
    {
      uint32_t launches = __atomic_load_n (&turn->launches, __ATOMIC_SEQ_CST);
      /* A kernel may wait for the one that is launched here: then it must not wait.  */
      if (queued && !drain (meter, stream))
        {
          vcuda_thread ()->credit.skips_turn = true;
          vcuda_thread ()->credit.turn = vcuda_turn_word (gpu);
          return;
        }
      vcuda_lock (&turn->mutex);
      /* Another thread has found the queue empty meanwhile: this launch begins work anew.  */
      if (!vcuda_own_busy (gpu))
        __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].work_begun, 1, __ATOMIC_RELAXED);
      turn->wants++;
      /* Another thread that launched meanwhile will come here too.  */
      bool alone = turn->launches == launches;
      vcuda_own_mark (gpu, alone ? 0 : vcuda_own_busy (gpu));
      vcuda_unlock (&turn->mutex);
      sleep_until_allowed (gpu, queued);
      vcuda_lock (&turn->mutex);
      turn->wants--;
      __atomic_fetch_add (&turn->launches, 1, __ATOMIC_SEQ_CST);
      if (vcuda_own_busy (gpu))
        vcuda_own_mark (gpu, VCUDA_TURN_BUSY);
      else
        vcuda_own_begin (gpu, stream, vcuda_now ());
      vcuda_unlock (&turn->mutex);
      if (vcuda_turn_allows (gpu, 0, vcuda_now ()))
        return;
      queued = false;
    }
}

bool
vcuda_turn_overlaps (int gpu)
{
  return has_streams (gpu) && __atomic_load_n (&vcuda_credit_threads, __ATOMIC_RELAXED) == 1;
}

uint64_t
vcuda_turn_most_in_flight (int gpu)
{
  switch (vcuda_turn_state (gpu))
    {
    case VCUDA_TURN_NONE:
      return vcuda_turn_share (gpu)->mps_percent ? MOST_UNDER_MPS_NS : MOST_IN_FLIGHT_NS;
    case VCUDA_TURN_OPEN:
      return MOST_OPEN_NS;
    default:
      return has_streams (gpu) ? MOST_OPEN_NS : MOST_AHEAD_NS;
    }
}

bool
vcuda_turn_is_held (int gpu, uint64_t now)
{
  return vcuda_turn_state (gpu) == VCUDA_TURN_HELD
         && now >= __atomic_load_n (&vcuda_own_turn[gpu].alone_until_ns, __ATOMIC_RELAXED);
}

/* After turns: the bucket of GPU time takes over what the keeper's queue has for the container.  */
static void
take_budget (int gpu)
{
  uint32_t *taken = &vcuda_pages.usage->gpu[gpu].turn_taken, word = vcuda_turn_word (gpu);
  int64_t budget
      = (int64_t) __atomic_load_n (&vcuda_turn_share (gpu)->turn_until_ns, __ATOMIC_RELAXED);
  uint32_t before = __atomic_load_n (taken, __ATOMIC_RELAXED);
  /* One thread of the container takes it, of whichever process.  */
  if ((word & VCUDA_TURN_STATE) == VCUDA_TURN_OPEN && before != word
      && vcuda_turn_word (gpu) == word
      && __atomic_compare_exchange_n (taken, &before, word, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED))
    vcuda_resume_bucket (gpu, budget);
}

void
vcuda_credit_in_turn (int gpu, bool in_turn)
{
  struct vcuda_credit *credit = &vcuda_thread ()->credit;
  if (credit->in_turn == in_turn)
    return;
  if (in_turn)
    vcuda_charge_time (gpu, -credit->ns);
  credit->in_turn = in_turn;
  if (!in_turn)
    {
      take_budget (gpu);
      vcuda_charge_time (gpu, credit->ns);
    }
}

/* If two threads store at once, the earlier moment may stay: the keeper then waits for less.  */
void
vcuda_turn_expect (int gpu, uint64_t moment)
{
  uint64_t *until = &vcuda_pages.usage->gpu[gpu].busy_until_ns;
  if (moment > __atomic_load_n (until, __ATOMIC_RELAXED))
    __atomic_store_n (until, moment, __ATOMIC_RELAXED);
}

void
vcuda_turn_wait_begin (int gpu)
{
  struct vcuda_own_turn *turn = &vcuda_own_turn[gpu];
  vcuda_thread ()->credit.turn_launches = __atomic_load_n (&turn->launches, __ATOMIC_SEQ_CST);
  vcuda_lock (&turn->mutex);
  turn->waits++;
  vcuda_own_mark (gpu, vcuda_own_busy (gpu));
  vcuda_unlock (&turn->mutex);
}

/* Whether the queue is empty after a wait. With the mutex held.  */
static bool
is_empty (struct vcuda_own_turn *turn, enum vcuda_waited waited, CUstream stream)
{
  if (turn->launches != vcuda_thread ()->credit.turn_launches)
    return false;
  if (waited == VCUDA_WAITED_CONTEXT)
    return true;
  if (turn->several)
    return false;
  if (waited == VCUDA_WAITED_STREAM)
    return stream == turn->stream;
  /* The program may have destroyed any other stream.  */
  if (turn->stream && turn->stream != CU_STREAM_LEGACY)
    return false;
  struct vcuda_capture_mode mode = vcuda_own_calls_begin ();
  bool done = real.cuStreamQuery (turn->stream) == CUDA_SUCCESS;
  vcuda_own_calls_end (mode);
  return done;
}

/* Whether the keeper waits for the queue, or may give the turn on while the program rests.  */
static bool
has_to_yield (int gpu)
{
  const struct vcuda_own_turn *turn = &vcuda_own_turn[gpu];
  uint32_t state = vcuda_turn_state (gpu);
  uint64_t until = __atomic_load_n (&vcuda_turn_share (gpu)->turn_until_ns, __ATOMIC_RELAXED);
  return state == VCUDA_TURN_WAIT
         || (state == VCUDA_TURN_HELD && (turn->gap_ns >= GRACE_NS || turn->rested_ns >= until));
}

/* The keeper reads the marks of a turn that is over when a thread rings.  */
static bool
is_over (int gpu)
{
  return vcuda_turn_state (gpu) == VCUDA_TURN_HELD
         && vcuda_now ()
                >= __atomic_load_n (&vcuda_turn_share (gpu)->turn_until_ns, __ATOMIC_RELAXED);
}

bool
vcuda_turn_wait_end (int gpu, enum vcuda_waited waited, CUstream stream, bool reaped)
{
  struct vcuda_own_turn *turn = &vcuda_own_turn[gpu];
  bool rests = false;
  vcuda_lock (&turn->mutex);
  turn->waits--;
  uint32_t busy = vcuda_own_busy (gpu);
  if (busy && reaped && vcuda_meters_idle (gpu) && is_empty (turn, waited, stream))
    {
      busy = 0;
      rests = true;
      vcuda_own_rest (gpu);
      /* Back in the bucket before the keeper may take it over; the next launch takes it again.  */
      uint32_t state = vcuda_turn_state (gpu);
      if (state == VCUDA_TURN_OPEN || state == VCUDA_TURN_WAIT)
        vcuda_credit_in_turn (gpu, true);
      vcuda_thread ()->credit.context = VCUDA_NO_CONTEXT; /* the next launch marks BUSY */
    }
  vcuda_own_mark (gpu, busy);
  /* Read after the mark was cleared: a keeper that changed the word before saw BUSY.  */
  bool yields = rests ? has_to_yield (gpu) : busy && is_over (gpu);
  vcuda_unlock (&turn->mutex);
  if (yields)
    vcuda_ring (gpu);
  return rests;
}

void
vcuda_turn_forget (void)
{
  vcuda_own_forget ();
  vcuda_turn_base = (const char *) &no_word; /* until the pages are mapped */
}
