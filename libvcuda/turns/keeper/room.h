/* Memory that pools keep: containers are asked to give it back for one that finds the GPU full.

   A container can ask for nothing, again and again: what its neighbours lose by that is bounded by
   how seldom they are asked. It is only what their pools keep unused.  */

#pragma once

#include "keeper/gpu_state.h"

/* With the mutex held, after all tenants were read: passes on what was asked since the last call.
 */
void room_pass_on (struct gpu *gpu, uint64_t now);
