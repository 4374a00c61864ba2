/* Which gate leads where, and the counting at its ends. The protocol is in gate.h.  */

#include "entry/gate.h"

#include "entry/gate_code.h"
#include "pages/slot.h"
#include "pages/suspended.h"
#include "real.h"
#include "thread/clock.h"
#include "thread/thread.h"

#define GATE_BYTES 16
/* A process for which no slot is free looks for one again so often.  */
#define WITHOUT_SLOT_NS 1000000000ull

/* By gate: first one for each entry, then those that vcuda_gate_of_function assigns.  */
static void *targets[VCUDA_GATES];

/* Offsets that gate.inc uses.  */
_Static_assert (offsetof (struct vcuda_gate, return_address) == 0, "gate.inc");
_Static_assert (offsetof (struct vcuda_gate, saved_register) == 8, "gate.inc");

static void *
gate_at (unsigned index)
{
  return (void *) (vcuda_gates + index * GATE_BYTES);
}

void *
vcuda_gate_of_entry (unsigned index, void *function)
{
#define UNASKED(index) case index:
  switch (index)
    {
      VCUDA_UNASKED (UNASKED)
      return function;
    default:
      break;
    }
  __atomic_store_n (&targets[index], function, __ATOMIC_RELEASE);
  return gate_at (index);
}

void *
vcuda_gate_of_function (void *function)
{
  /* No lock: two threads may come here at once.  */
  for (unsigned at = VCUDA_FIRST_NVML; at < VCUDA_GATES; at++)
    {
      void *free = NULL;
      if (__atomic_compare_exchange_n (&targets[at], &free, function, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE)
          || free == function)
        return gate_at (at);
    }
  __atomic_fetch_add (&vcuda_pages.usage->newer_symbols, 1, __ATOMIC_RELAXED);
  return function;
}

/* NULL: every slot is taken. Looking for one takes a system call for each.  */
static struct vcuda_usage_slot *
own_slot (void)
{
  static uint64_t missed_ns;
  struct vcuda_usage_slot *slot = __atomic_load_n (&vcuda_own_slot.slot, __ATOMIC_ACQUIRE);
  if (__builtin_expect (vcuda_slot_is_own (slot), 1))
    return slot;
  uint64_t missed = __atomic_load_n (&missed_ns, __ATOMIC_RELAXED);
  if (missed && vcuda_now () - missed < WITHOUT_SLOT_NS)
    return NULL;
  slot = vcuda_slot_take ();
  __atomic_store_n (&missed_ns, slot ? 0 : vcuda_now (), __ATOMIC_RELAXED);
  return slot;
}

/* Counts this call in the slot that is returned; waits while the container is suspended.  */
static struct vcuda_usage_slot *
count_in (void)
{
  for (;;)
    {
      struct vcuda_usage_slot *slot = own_slot ();
      if (slot)
        __atomic_fetch_add (&slot->calls_inside, 1, __ATOMIC_SEQ_CST);
      if (__builtin_expect (!vcuda_is_suspended (), 1))
        return slot;
      if (slot)
        __atomic_fetch_sub (&slot->calls_inside, 1, __ATOMIC_SEQ_CST);
      vcuda_wait_until_awake ();
    }
}

struct vcuda_gate_way
vcuda_gate_enter (unsigned index)
{
  struct vcuda_gate *gate = &vcuda_thread ()->gate;
  struct vcuda_gate_way way = { .target = __atomic_load_n (&targets[index], __ATOMIC_ACQUIRE) };
  if (gate->inside)
    return way;
  struct vcuda_usage_slot *slot = count_in ();
  gate->inside = true;
  __atomic_signal_fence (__ATOMIC_SEQ_CST);
  gate->slot = slot;
  gate->generation = __atomic_load_n (&vcuda_own_slot.generation, __ATOMIC_RELAXED);
  way.gate = gate;
  return way;
}

void
vcuda_gate_leave (void)
{
  struct vcuda_gate *gate = &vcuda_thread ()->gate;
  struct vcuda_usage_slot *slot = gate->slot;
  /* Otherwise the process has lost this slot, or this is a child that was forked in a callback.  */
  bool counted
      = slot == __atomic_load_n (&vcuda_own_slot.slot, __ATOMIC_ACQUIRE)
        && gate->generation == __atomic_load_n (&vcuda_own_slot.generation, __ATOMIC_RELAXED)
        && vcuda_slot_is_own (slot);
  __atomic_signal_fence (__ATOMIC_SEQ_CST);
  gate->inside = false;
  __atomic_signal_fence (__ATOMIC_SEQ_CST);
  if (counted)
    __atomic_fetch_sub (&slot->calls_inside, 1, __ATOMIC_SEQ_CST);
}

int
vcuda_gate_personality (int version, int actions, uint64_t kind,
                        struct _Unwind_Exception *exception, struct _Unwind_Context *context)
{
  (void) version, (void) kind, (void) exception, (void) context;
  if (actions & _UA_CLEANUP_PHASE && vcuda_thread ()->gate.inside)
    vcuda_gate_leave ();
  return _URC_CONTINUE_UNWIND;
}
