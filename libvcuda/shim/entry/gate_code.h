/* What gate.c and gate.inc have of each other.  */

#pragma once

#include <stdint.h>
#include <unwind.h>

#include "thread/thread.h"

/* VCUDA_GATES pieces of code, of GATE_BYTES each.  */
extern const char vcuda_gates[];

/* Returned in two registers. GATE is NULL for a call within another one, which passes.  */
struct vcuda_gate_way
{
  void *target;
  struct vcuda_gate *gate;
};

/* Before a call through gate INDEX; may wait.  */
struct vcuda_gate_way vcuda_gate_enter (unsigned index);

/* After a call for which vcuda_gate_enter returned a gate.  */
void vcuda_gate_leave (void);

/* Called for the gate's frame when a call is left by an exception or by the end of its thread.  */
int vcuda_gate_personality (int version, int actions, uint64_t kind,
                            struct _Unwind_Exception *exception, struct _Unwind_Context *context);
