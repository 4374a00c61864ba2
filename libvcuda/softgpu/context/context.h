#ifndef SOFTGPU_CONTEXT_H
#define SOFTGPU_CONTEXT_H

#include "driver/driver.h"

/* Gives back what the limits of CONTEXT take; they are the usual ones again.  */
void softgpu_usual_limits (CUcontext context);

#endif
