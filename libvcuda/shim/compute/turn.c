/* Takes part in exclusive turns: marks, waits and rings. The protocol is in turn.h.  */

#include "compute/turn.h"

#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compute/credit.h"
#include "compute/drain.h"
#include "compute/meters.h"
#include "compute/time_bucket.h"
#include "pages/pages.h"
#include "pages/slot.h"
#include "thread/clock.h"
#include "thread/in_driver.h"
#include "thread/own_calls.h"

/* A program that usually leaves the GPU idle for longer than this gives its turn on at once.  */
#define GRACE_NS 200000ull
#define LONGEST_GAP_NS 5000000ull
/* By this, and a quarter, what a switch seems to cost grows at most.  */
#define SWITCH_STEP_NS 10000
/* An answer to the bell takes microseconds, on a busy host milliseconds.  */
#define PATIENCE_NS 250000000ull
/* How long a keeper that did not answer counts as dead; each time twice as long.  */
#define WITHOUT_KEEPER_NS 1000000000ull
#define LONGEST_WITHOUT_KEEPER_NS 64000000000ull
/* Queued ahead in a turn: enough to keep the GPU busy, little enough to end the turn in time.  */
#define MOST_AHEAD_NS 1000000ull
/* Without turns, but where a neighbour may begin at any moment.  */
#define MOST_OPEN_NS 4000000ull
#define MOST_IN_FLIGHT_NS 20000000ull

/* What this process does on one GPU.  */
struct own_turn
{
  pthread_mutex_t mutex;
  uint32_t marks;          /* as in the slot */
  uint32_t waits, wants;   /* threads that wait for the queue, and for a turn */
  uint32_t launches;       /* on the slow path */
  CUstream stream;         /* of the first launch since the queue was empty */
  bool several;            /* launches went to other streams too */
  bool overlaps;           /* so it was at any time */
  uint64_t rested_ns;      /* when the queue was last found empty */
  uint64_t gap_ns;         /* how long it usually stays empty */
  uint64_t began_ns;       /* when it was last found filled */
  uint32_t began_word;     /* the turn's word then */
  bool begins_turn;        /* the first time in this turn */
  uint64_t span_ns;        /* how long it usually stays filled, but for that time */
  uint64_t alone_until_ns; /* the keeper counts as dead until then */
  uint64_t alone_ns;       /* how long it counted as dead last */
};

static struct own_turn own[VCUDA_MAX_GPUS]
    = { [0 ... VCUDA_MAX_GPUS - 1] = { .mutex = PTHREAD_MUTEX_INITIALIZER } };

static const uint32_t no_word;
const char *vcuda_turn_base = (const char *) &no_word;

static const struct vcuda_limits_gpu *
share_of (int gpu)
{
  return &vcuda_pages.limits->gpu[gpu];
}

static uint32_t
word_of (int gpu)
{
  return __atomic_load_n (&share_of (gpu)->turn, __ATOMIC_SEQ_CST);
}

static uint32_t
state_of (int gpu)
{
  return word_of (gpu) & VCUDA_TURN_STATE;
}

/* With the mutex held. Where every slot is taken, the process has no marks.  */
static void
set_marks (struct own_turn *turn, uint32_t marks)
{
  int gpu = (int) (turn - own), shift = gpu * VCUDA_TURN_MARK_BITS;
  if (turn->waits && marks & VCUDA_TURN_BUSY)
    marks |= VCUDA_TURN_IN_WAIT;
  if (turn->wants)
    marks |= VCUDA_TURN_WANTS;
  __atomic_store_n (&turn->marks, marks, __ATOMIC_SEQ_CST);
  struct vcuda_usage_slot *slot = vcuda_slot ();
  if (!slot)
    return;
  uint64_t all = __atomic_load_n (&slot->turn_marks, __ATOMIC_RELAXED), changed;
  do
    changed = (all & ~(15ull << shift)) | (uint64_t) marks << shift;
  while (!__atomic_compare_exchange_n (&slot->turn_marks, &all, changed, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED));
}

static uint32_t
busy_of (const struct own_turn *turn)
{
  return __atomic_load_n (&turn->marks, __ATOMIC_SEQ_CST) & VCUDA_TURN_BUSY;
}

static void
futex (const uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
{
  int saved = errno;
  syscall (SYS_futex, word, operation, value, timeout, NULL, 0);
  errno = saved;
}

static void
ring (int gpu)
{
  uint32_t *bell = &vcuda_pages.usage->gpu[gpu].bell;
  __atomic_fetch_add (bell, 1, __ATOMIC_SEQ_CST);
  futex (bell, FUTEX_WAKE, INT32_MAX, NULL);
}

static void
sleep_while (int gpu, uint32_t word, uint64_t ns)
{
  struct timespec span
      = { .tv_sec = (time_t) (ns / 1000000000ull), .tv_nsec = (long) (ns % 1000000000ull) };
  futex (&share_of (gpu)->turn, FUTEX_WAIT, word, &span);
}

void
vcuda_turn_sleep (int gpu, uint64_t ns)
{
  uint32_t word = word_of (gpu);
  if ((word & VCUDA_TURN_STATE) == VCUDA_TURN_NONE)
    vcuda_sleep_ns (ns);
  else if (word == vcuda_thread ()->credit.turn)
    sleep_while (gpu, word, ns);
}

/* Learns how long the program leaves the GPU idle.  */
static void
learn_gap (struct own_turn *turn, uint64_t now)
{
  if (!turn->rested_ns || now <= turn->rested_ns)
    return;
  uint64_t gap = now - turn->rested_ns;
  gap = gap < LONGEST_GAP_NS ? gap : LONGEST_GAP_NS;
  turn->gap_ns = turn->gap_ns - turn->gap_ns / 4 + gap / 4;
}

/* With the mutex held: the queue was empty.  */
static void
begin_work (struct own_turn *turn, CUstream stream, uint64_t now)
{
  int gpu = (int) (turn - own);
  uint32_t word = word_of (gpu);
  turn->begins_turn = word != turn->began_word;
  turn->began_word = word;
  turn->began_ns = now;
  turn->stream = stream;
  turn->several = false;
  set_marks (turn, VCUDA_TURN_BUSY);
  __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].work_begun, 1, __ATOMIC_RELAXED);
}

/* Learns what a switch of the GPU costs: the first work of a turn waits for it. It is less than
   what any work was late; where that differs, so does the work.  */
static void
learn_switch (struct own_turn *turn, uint64_t now)
{
  int gpu = (int) (turn - own);
  uint32_t *learnt = &vcuda_pages.usage->gpu[gpu].switch_ns;
  uint64_t span = now - turn->began_ns;
  span = span < LONGEST_GAP_NS ? span : LONGEST_GAP_NS;
  if (!turn->begins_turn)
    turn->span_ns = turn->span_ns - turn->span_ns / 4 + span / 4;
  else if ((turn->began_word & VCUDA_TURN_STATE) == VCUDA_TURN_HELD)
    {
      uint32_t late = span > turn->span_ns ? (uint32_t) (span - turn->span_ns) : 0;
      uint32_t before = __atomic_load_n (learnt, __ATOMIC_RELAXED);
      before = before < LONGEST_GAP_NS ? before + before / 4 + SWITCH_STEP_NS : LONGEST_GAP_NS;
      __atomic_store_n (learnt, late < before ? late : before, __ATOMIC_RELAXED);
    }
}

bool
vcuda_turn_mark_busy (int gpu, CUstream stream)
{
  struct own_turn *turn = &own[gpu];
  __atomic_store_n (&vcuda_turn_base, (const char *) vcuda_pages.limits, __ATOMIC_RELAXED);
  vcuda_thread ()->credit.turn_offset
      = (uint32_t) ((const char *) &share_of (gpu)->turn - (const char *) vcuda_pages.limits);
  vcuda_lock (&turn->mutex);
  bool before = busy_of (turn);
  __atomic_fetch_add (&turn->launches, 1, __ATOMIC_SEQ_CST);
  if (!before)
    {
      uint64_t now = vcuda_now ();
      learn_gap (turn, now);
      begin_work (turn, stream, now);
    }
  else if (turn->stream != stream)
    {
      turn->several = true;
      __atomic_store_n (&turn->overlaps, true, __ATOMIC_RELAXED);
    }
  vcuda_unlock (&turn->mutex);
  return before;
}

bool
vcuda_turn_allows (int gpu, uint64_t in_flight_ns)
{
  uint32_t word = word_of (gpu), state = word & VCUDA_TURN_STATE;
  bool allowed = state == VCUDA_TURN_NONE || state == VCUDA_TURN_OPEN;
  if (!allowed)
    {
      uint64_t now = vcuda_now ();
      uint64_t until = __atomic_load_n (&share_of (gpu)->turn_until_ns, __ATOMIC_RELAXED);
      allowed = (state == VCUDA_TURN_HELD && now + in_flight_ns < until)
                || now < __atomic_load_n (&own[gpu].alone_until_ns, __ATOMIC_RELAXED)
                || vcuda_thread ()->credit.skips_turn;
    }
  if (allowed)
    vcuda_thread ()->credit.turn = word;
  return allowed;
}

/* A lease that ends far from now was made by another clock: in a time namespace of the container's
   there are no turns.  */
static bool
keeper_lives (int gpu, uint64_t now)
{
  uint64_t lease = __atomic_load_n (&share_of (gpu)->turn_lease_ns, __ATOMIC_RELAXED);
  return lease - now <= VCUDA_LONGEST_LEASE_NS;
}

static void
go_without_keeper (int gpu, uint64_t now)
{
  uint64_t *alone = &own[gpu].alone_ns;
  uint64_t ns = 2 * __atomic_load_n (alone, __ATOMIC_RELAXED);
  ns = ns > WITHOUT_KEEPER_NS ? ns : WITHOUT_KEEPER_NS;
  ns = ns < LONGEST_WITHOUT_KEEPER_NS ? ns : LONGEST_WITHOUT_KEEPER_NS;
  __atomic_store_n (alone, ns, __ATOMIC_RELAXED);
  __atomic_store_n (&own[gpu].alone_until_ns, now + ns, __ATOMIC_RELAXED);
}

/* The marks may have been lost: the program closed the page's descriptor, or the page was cut.  */
static void
repeat_marks (int gpu)
{
  vcuda_lock (&own[gpu].mutex);
  set_marks (&own[gpu], busy_of (&own[gpu]));
  vcuda_unlock (&own[gpu].mutex);
  ring (gpu);
}

/* Whether the container had work to the end of its last turn. Otherwise it waits for other
   containers, not for its share.  */
static bool
has_used_turn (int gpu, bool queued)
{
  uint64_t until = __atomic_load_n (&share_of (gpu)->turn_until_ns, __ATOMIC_RELAXED);
  uint64_t rested = __atomic_load_n (&own[gpu].rested_ns, __ATOMIC_RELAXED);
  return queued || state_of (gpu) == VCUDA_TURN_HELD || rested - until < PATIENCE_NS;
}

/* Sleeps until the keeper gives a turn, or counts as dead. QUEUED: until now its queue held work.
 */
static void
sleep_until_allowed (int gpu, bool queued)
{
  uint64_t rang = vcuda_now (), since = rang;
  bool used_turn = has_used_turn (gpu, queued);
  ring (gpu);
  for (;;)
    {
      uint32_t word = word_of (gpu);
      if (vcuda_turn_allows (gpu, 0))
        break;
      sleep_while (gpu, word, PATIENCE_NS);
      uint64_t now = vcuda_now ();
      /* Updated at each pause: the host sees from it which containers want more than they have.  */
      if (used_turn)
        __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].throttled_ns, now - since,
                            __ATOMIC_RELAXED);
      if (now - since >= PATIENCE_NS)
        repeat_marks (gpu);
      since = now;
      if (now - rang >= PATIENCE_NS && !keeper_lives (gpu, now))
        {
          go_without_keeper (gpu, now);
          return;
        }
    }
  if (state_of (gpu) != VCUDA_TURN_WAIT)
    __atomic_store_n (&own[gpu].alone_ns, 0, __ATOMIC_RELAXED);
}

void
vcuda_turn_wait (struct meter *meter, CUstream stream, bool queued)
{
  int gpu = meter->gpu;
  struct own_turn *turn = &own[gpu];
  for (;;)
    {
      uint32_t launches = __atomic_load_n (&turn->launches, __ATOMIC_SEQ_CST);
      /* A kernel may wait for the one that is launched here: then it must not wait.  */
      if (queued && !vcuda_drain (meter, stream))
        {
          vcuda_thread ()->credit.skips_turn = true;
          vcuda_thread ()->credit.turn = word_of (gpu);
          return;
        }
      vcuda_lock (&turn->mutex);
      turn->wants++;
      /* Another thread that launched meanwhile will come here too.  */
      bool alone = turn->launches == launches;
      set_marks (turn, alone ? 0 : busy_of (turn));
      vcuda_unlock (&turn->mutex);
      sleep_until_allowed (gpu, queued);
      vcuda_lock (&turn->mutex);
      turn->wants--;
      __atomic_fetch_add (&turn->launches, 1, __ATOMIC_SEQ_CST);
      if (busy_of (turn))
        set_marks (turn, VCUDA_TURN_BUSY);
      else
        begin_work (turn, stream, vcuda_now ());
      vcuda_unlock (&turn->mutex);
      if (vcuda_turn_allows (gpu, 0))
        return;
      queued = false;
    }
}

bool
vcuda_turn_overlaps (int gpu)
{
  return __atomic_load_n (&own[gpu].overlaps, __ATOMIC_RELAXED)
         && __atomic_load_n (&vcuda_credit_threads, __ATOMIC_RELAXED) == 1;
}

uint64_t
vcuda_turn_most_in_flight (int gpu)
{
  switch (state_of (gpu))
    {
    case VCUDA_TURN_NONE:
      return MOST_IN_FLIGHT_NS;
    case VCUDA_TURN_OPEN:
      return MOST_OPEN_NS;
    default:
      return MOST_AHEAD_NS;
    }
}

bool
vcuda_turn_is_held (int gpu)
{
  return state_of (gpu) == VCUDA_TURN_HELD
         && vcuda_now () >= __atomic_load_n (&own[gpu].alone_until_ns, __ATOMIC_RELAXED);
}

void
vcuda_turn_take_budget (int gpu)
{
  uint32_t *taken = &vcuda_pages.usage->gpu[gpu].turn_taken, word = word_of (gpu);
  int64_t budget = (int64_t) __atomic_load_n (&share_of (gpu)->turn_until_ns, __ATOMIC_RELAXED);
  uint32_t before = __atomic_load_n (taken, __ATOMIC_RELAXED);
  /* One thread of the container takes it, of whichever process.  */
  if ((word & VCUDA_TURN_STATE) == VCUDA_TURN_OPEN && before != word && word_of (gpu) == word
      && __atomic_compare_exchange_n (taken, &before, word, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_RELAXED))
    vcuda_resume_bucket (gpu, budget);
}

/* If two threads store at once, the earlier moment may stay: the keeper then waits for less.  */
void
vcuda_turn_expect (int gpu, uint64_t ns)
{
  uint64_t *until = &vcuda_pages.usage->gpu[gpu].busy_until_ns;
  uint64_t moment = vcuda_now () + ns;
  if (moment > __atomic_load_n (until, __ATOMIC_RELAXED))
    __atomic_store_n (until, moment, __ATOMIC_RELAXED);
}

void
vcuda_turn_wait_begin (int gpu)
{
  struct own_turn *turn = &own[gpu];
  vcuda_thread ()->credit.turn_launches = __atomic_load_n (&turn->launches, __ATOMIC_SEQ_CST);
  vcuda_lock (&turn->mutex);
  turn->waits++;
  set_marks (turn, busy_of (turn));
  vcuda_unlock (&turn->mutex);
}

/* Whether the queue is empty after a wait. With the mutex held.  */
static bool
is_empty (struct own_turn *turn, enum vcuda_waited waited, CUstream stream)
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
has_to_yield (const struct own_turn *turn)
{
  int gpu = (int) (turn - own);
  uint32_t state = state_of (gpu);
  uint64_t until = __atomic_load_n (&share_of (gpu)->turn_until_ns, __ATOMIC_RELAXED);
  return state == VCUDA_TURN_WAIT
         || (state == VCUDA_TURN_HELD && (turn->gap_ns >= GRACE_NS || turn->rested_ns >= until));
}

bool
vcuda_turn_wait_end (int gpu, enum vcuda_waited waited, CUstream stream, bool reaped)
{
  struct own_turn *turn = &own[gpu];
  bool rests = false;
  vcuda_lock (&turn->mutex);
  turn->waits--;
  uint32_t busy = busy_of (turn);
  if (busy && reaped && vcuda_meters_idle (gpu) && is_empty (turn, waited, stream))
    {
      busy = 0;
      rests = true;
      uint64_t now = vcuda_now ();
      learn_switch (turn, now);
      __atomic_store_n (&turn->rested_ns, now, __ATOMIC_RELAXED);
      vcuda_thread ()->credit.context = VCUDA_NO_CONTEXT; /* the next launch marks BUSY */
    }
  set_marks (turn, busy);
  /* Read after the mark was cleared: a keeper that changed the word before saw BUSY.  */
  bool yields = rests && has_to_yield (turn);
  vcuda_unlock (&turn->mutex);
  if (yields)
    ring (gpu);
  return rests;
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
    if (own[gpu].marks)
      {
        own[gpu].waits = own[gpu].wants = 0;
        set_marks (&own[gpu], 0);
        ring (gpu);
      }
}

void
vcuda_turn_forget (void)
{
  for (int gpu = 0; gpu < VCUDA_MAX_GPUS; gpu++)
    own[gpu] = (struct own_turn){ .mutex = PTHREAD_MUTEX_INITIALIZER };
  vcuda_turn_base = (const char *) &no_word; /* until the pages are mapped */
}
