/* The meters of this process, one for each context that launched something.  */

#pragma once

#include "meter/meter.h"

/* The meter of CONTEXT; with MAKE a new one for GPU if there is none. NULL: there is none, or no
   room for one.  */
struct meter *vcuda_meter_of (CUcontext context, int gpu, bool make);

bool vcuda_meters_exist (void);

/* Whether no measured launch is in flight on GPU.  */
bool vcuda_meters_idle (int gpu);

/* GPU's queue was found empty.  */
void vcuda_meters_break (int gpu);

/* After CONTEXT was destroyed.  */
void vcuda_meter_drop (CUcontext context);

/* In the child after a fork.  */
void vcuda_meters_forget (void);
