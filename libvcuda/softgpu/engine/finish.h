/* Ends the commands that are due.  */

#pragma once

#include "state/queue.h"

/* Ends what SLOT's lanes have done at the GPU's clock, and stamps records; false: nothing.  */
bool softgpu_finish (struct softgpu_state *state, unsigned gpu, unsigned slot);
