/* Enforces the memory limit of the container over all its processes. No total is stored: the sum of
   the slots counts.

   Reservation: a process adds the bytes to its own slot and then sums all slots. If the sum is
   within the limit, the bytes are granted. Two processes that do this at the same time both see
   both amounts, so the granted bytes never exceed the limit. But both may see too much although one
   of them would fit, so this sum refuses nothing.

   Refusal: if the bytes do not fit, the process takes them off again. It takes the lock for
   refusals and tries again until it fits, or until no other slot had a decision during a try
   (decisions.h): then the refusal is right.

   A process that a checkpoint has taken off the GPU has a bit in `off_gpu`: its slot is left out of
   the sum. Its restore takes the bit away as a reservation of all its bytes.  */

#include "charge/charge.h"

#include <errno.h>
#include <pthread.h>

#include "pages/decisions.h"
#include "pages/pages.h"
#include "pages/slot.h"
#include "thread/clock.h"
#include "thread/in_driver.h"

/* A process that is stopped while it decides must not block the others for ever: after this time
   its bytes count as held.  */
#define PATIENCE_NS 1000000000ull

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static bool
try_to_hold (struct vcuda_usage_slot *slot, int gpu, uint64_t bytes)
{
  uint32_t *word = vcuda_decision_begin (slot);
  vcuda_slot_hold (slot, gpu, (int64_t) bytes);
  bool fits = vcuda_held_bytes (gpu) <= vcuda_memory_limit (gpu);
  if (!fits)
    vcuda_slot_hold (slot, gpu, (int64_t) -bytes);
  vcuda_decision_end (slot, word);
  return fits;
}

/* Counts the bytes of slot AT again, if they fit on all GPUs. SLOT: this process's.  */
static bool
try_to_count (struct vcuda_usage_slot *slot, unsigned at)
{
  uint32_t *word = vcuda_decision_begin (slot);
  bool was_off = vcuda_slot_set_off (at, false), fits = true;
  for (int gpu = 0; was_off && gpu < (int) vcuda_gpu_count (); gpu++)
    if (__atomic_load_n (&vcuda_pages.usage->slot[at].held_bytes[gpu], __ATOMIC_SEQ_CST))
      fits &= vcuda_held_bytes (gpu) <= vcuda_memory_limit (gpu);
  if (!fits)
    vcuda_slot_set_off (at, true);
  vcuda_decision_end (slot, word);
  return fits;
}

/* BYTES on GPU; or, with GPU -1, those of slot BYTES.  */
static __attribute__ ((noinline)) bool
hold_or_refuse (struct vcuda_usage_slot *slot, int gpu, uint64_t bytes)
{
  int saved = errno;
  uint64_t deadline = vcuda_now () + PATIENCE_NS, pause = 50000;
  vcuda_lock (&mutex);
  bool locked = vcuda_refuse_lock (deadline);
  vcuda_slots_reclaim ();
  bool granted;
  for (;;)
    {
      struct vcuda_decisions before, after;
      vcuda_decisions_read (&before);
      granted = gpu < 0 ? try_to_count (slot, (unsigned) bytes) : try_to_hold (slot, gpu, bytes);
      vcuda_decisions_read (&after);
      if (granted || vcuda_decisions_unchanged (&before, &after, slot) || vcuda_now () >= deadline)
        break;
      vcuda_sleep_ns (pause);
      pause = pause < 1000000 ? pause * 2 : pause;
      vcuda_slots_reclaim (); /* a process that was deciding may have been killed */
    }
  if (locked)
    vcuda_refuse_unlock ();
  vcuda_unlock (&mutex);
  errno = saved;
  return granted;
}

CUresult
vcuda_try_reserve (int gpu, uint64_t bytes)
{
  if (gpu < 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  struct vcuda_usage_slot *slot = vcuda_slot ();
  if (!slot)
    return CUDA_ERROR_OPERATING_SYSTEM;
  if (bytes <= vcuda_memory_limit (gpu)
      && (try_to_hold (slot, gpu, bytes) || hold_or_refuse (slot, gpu, bytes)))
    return CUDA_SUCCESS;
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult
vcuda_count_again (unsigned at)
{
  struct vcuda_usage_slot *slot = vcuda_slot ();
  if (!slot)
    return CUDA_ERROR_OPERATING_SYSTEM;
  bool fits = try_to_count (slot, at) || hold_or_refuse (slot, -1, at);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void
vcuda_count_refusal (int gpu)
{
  if (gpu >= 0)
    __atomic_fetch_add (&vcuda_pages.usage->gpu[gpu].refusals, 1, __ATOMIC_RELAXED);
}

/* A process that has lost its slot takes another, and enters what it holds, with this change.  */
static void
change_held (int gpu, int64_t bytes)
{
  struct vcuda_usage_slot *slot = __atomic_load_n (&vcuda_own_slot.slot, __ATOMIC_ACQUIRE);
  if (gpu < 0)
    return;
  if (vcuda_slot_is_own (slot))
    vcuda_slot_hold (slot, gpu, bytes);
  else
    vcuda_slot_take ();
}

void
vcuda_give_back (int gpu, uint64_t bytes)
{
  change_held (gpu, (int64_t) -bytes);
}

void
vcuda_charge_unchecked (int gpu, uint64_t bytes)
{
  change_held (gpu, (int64_t) bytes);
}

void
vcuda_charge_forget (void)
{
  pthread_mutex_init (&mutex, NULL);
}
