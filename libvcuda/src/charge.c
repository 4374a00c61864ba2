/* The limit on memory, over all processes of the container, without a stored total.

   A process adds what it wants to its own slot and then sums all slots. Two that do so at the same
   time both see both, so the sum of what is granted never passes the limit; but both may see too
   much where one would have fitted. So nobody refuses on that: a loser takes its bytes off again
   and decides alone, under a lock, and only on a sum in which every other slot stood still.

   `asking` says who stands still: its low half counts reservations under way, its high half those
   that ended, so two equal readings with an empty low half had nothing between them.  */

#include "charge.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "clock.h"
#include "pages.h"
#include "slot.h"

#define ASKING_BEGIN 1u
#define ASKING_END ((1u << 16) - 1u)
#define ASKING_NOW 0xffffu

/* A process that was stopped in the middle of asking could make others wait for ever: after this
   its bytes count as held.  */
#define PATIENCE_NS 1000000000ull

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool
try_to_hold (struct vcuda_usage_slot *slot, int gpu, uint64_t bytes)
{
  __atomic_fetch_add (&slot->asking, ASKING_BEGIN, __ATOMIC_SEQ_CST);
  vcuda_slot_hold (slot, gpu, (int64_t) bytes);
  bool fits = vcuda_held_bytes (gpu) <= vcuda_memory_limit (gpu);
  if (!fits)
    vcuda_slot_hold (slot, gpu, -(int64_t) bytes);
  __atomic_fetch_add (&slot->asking, ASKING_END, __ATOMIC_SEQ_CST);
  return fits;
}

static void
read_asking (uint32_t *asking)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  memset (asking, 0, VCUDA_MAX_PROCESSES * sizeof *asking);
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_SEQ_CST);
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    asking[i] = __atomic_load_n (&usage->slot[i].asking, __ATOMIC_SEQ_CST);
}

/* Did every slot stand still between the two readings, but for one attempt of our own?  */
static bool
stood_still (const uint32_t *before, const uint32_t *after, const struct vcuda_usage_slot *own)
{
  unsigned mine = (unsigned) (own - vcuda_pages.usage->slot);
  for (unsigned i = 0; i < VCUDA_MAX_PROCESSES; i++)
    {
      uint32_t expected = before[i] + (i == mine ? ASKING_BEGIN + ASKING_END : 0);
      if ((before[i] & ASKING_NOW) || after[i] != expected)
        return false;
    }
  return true;
}

static bool
hold_or_refuse (struct vcuda_usage_slot *slot, int gpu, uint64_t bytes)
{
  uint64_t deadline = vcuda_now () + PATIENCE_NS;
  pthread_mutex_lock (&mutex);
  bool locked = vcuda_refuse_lock (deadline);
  vcuda_slots_reclaim ();
  bool granted;
  for (;;)
    {
      uint32_t before[VCUDA_MAX_PROCESSES];
      uint32_t after[VCUDA_MAX_PROCESSES];
      read_asking (before);
      granted = try_to_hold (slot, gpu, bytes);
      read_asking (after);
      if (granted || stood_still (before, after, slot) || vcuda_now () >= deadline)
        break;
      vcuda_sleep_ns (50000);
      vcuda_slots_reclaim (); /* who was asking may have been killed */
    }
  if (locked)
    vcuda_refuse_unlock ();
  pthread_mutex_unlock (&mutex);
  return granted;
}

CUresult
vcuda_reserve (int gpu, uint64_t bytes)
{
  if (gpu < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct vcuda_usage_slot *slot = vcuda_slot ();
  if (!slot)
    return CUDA_ERROR_OPERATING_SYSTEM;
  int saved = errno;
  bool granted = bytes <= vcuda_memory_limit (gpu)
                 && (try_to_hold (slot, gpu, bytes) || hold_or_refuse (slot, gpu, bytes));
  errno = saved;
  if (granted)
    return CUDA_SUCCESS;
  __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].refusals, 1, __ATOMIC_RELAXED);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void
vcuda_give_back (int gpu, uint64_t bytes)
{
  struct vcuda_usage_slot *slot = gpu >= 0 ? vcuda_slot () : NULL;
  if (slot)
    vcuda_slot_hold (slot, gpu, -(int64_t) bytes);
}

void
vcuda_hold_anyway (int gpu, uint64_t bytes)
{
  struct vcuda_usage_slot *slot = gpu >= 0 ? vcuda_slot () : NULL;
  if (slot)
    vcuda_slot_hold (slot, gpu, (int64_t) bytes);
}

void
vcuda_charge_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
}
