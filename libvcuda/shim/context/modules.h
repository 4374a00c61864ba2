/* The charge for modules and libraries.  */

#pragma once

#include "memory/settle.h"

/* Reserves BYTES in the current context. Without a current context it reserves nothing, and CHARGE
   has no context.  */
CUresult vcuda_image_reserve (struct vcuda_charge *charge, uint64_t bytes);

/* The driver named the variable at START of an image of unknown size. Its memory is taken already,
   so it is counted whether or not it fits.  */
void vcuda_variable_named (const void *handle, CUdeviceptr start, uint64_t bytes);
