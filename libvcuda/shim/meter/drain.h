/* Waits until a context's queue is empty.  */

#pragma once

#include <stdbool.h>

#include "meter/meter.h"

/* Sleeps until the work that STREAM holds, and every measured launch of METER, has ended. False:
   it has not ended 0.2 s after twice its estimate. Called without the meter's lock.  */
bool vcuda_drain (struct meter *meter, CUstream stream);
