/* The limits of a context.  */

#ifndef SOFTGPU_CONTEXT_H
#define SOFTGPU_CONTEXT_H

#include "driver/driver.h"

/* Resets the limits of CONTEXT to their defaults, and gives back the memory that they took.  */
void softgpu_usual_limits (CUcontext context);

#endif
