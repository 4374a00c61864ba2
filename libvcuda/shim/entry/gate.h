/* The gate: with calls_ask (vcuda_abi.h) each call to the driver is counted in the process's slot,
   and waits while the container is suspended.

   `real` then holds gates in place of the driver's functions, and cuGetProcAddress hands gates out.
   So the exports and the shim's own functions stay as they are, and a container without calls_ask
   runs the same instructions as if there were no gate. A gate is 16 bytes of code (gate.inc), which
   keeps every argument where it is: no prototype is needed, so it serves functions of any driver.

   Only the outermost call of a thread is counted. Others come from a callback of the driver, from a
   driver that calls its own exports, or from a signal handler; they pass, because the host waits
   for the outermost one, which is counted. A thread that waits is not counted.

     the call         adds 1 to calls_inside, reads `suspended`: 0, and enters the driver
     a signal here    runs calls of its own, from beginning to end
     inside = true    from here until the end other calls of this thread pass
     the driver       its function is called with the caller's return address taken off the stack,
                      so that arguments on the stack stay in place
     inside = false, and 1 is taken off calls_inside

   A call that ends by an exception or a cancelled thread is taken off by the gate's personality
   routine. One that a longjmp leaves stays counted: the container is then not idle until the
   process ends. After a fork in a callback the child's slot is another one, which begins at 0.  */

#pragma once

/* The gate of entry INDEX of the table, a function of the driver's libcuda, which leads to
   FUNCTION; FUNCTION itself if it need not ask.  */
void *vcuda_gate_of_entry (unsigned index, void *function);

/* A gate that leads to any function of the driver's, for cuGetProcAddress; FUNCTION itself if more
   are asked for than any driver has.  */
void *vcuda_gate_of_function (void *function);
