/* Memory that streams unmap from sparse arrays.

   A stream unmaps asynchronously, so the memory stays charged until an event that is recorded
   behind the call has passed.  */

#pragma once

#include <stdbool.h>

#include "memory/bindings.h"
#include "real.h"

/* Ends the bindings of LIST once STREAM has done all that is submitted to it by now. Needs the lock
   of blocks.  */
void vcuda_stream_unmaps_add (CUstream stream, CUcontext context, struct vcuda_binding *list);

/* Gives back what streams have unmapped by now. True: something was given back.  */
bool vcuda_stream_unmaps_settle (void);

/* The arrays of CONTEXT have ended with it.  */
void vcuda_stream_unmaps_end_context (CUcontext context);

/* In the child after a fork.  */
void vcuda_stream_unmaps_forget (void);
