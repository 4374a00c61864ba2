/* The limits of a context.  */

#pragma once

#include "driver/driver.h"

/* Resets the limits of CONTEXT to their defaults, and gives back the memory that they took.  */
void softgpu_usual_limits (CUcontext context);
