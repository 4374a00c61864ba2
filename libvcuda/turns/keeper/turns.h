/* The decisions about one GPU's turns. See turns.c.  */

#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "keeper/gpu_state.h"

/* With the mutex held: reads all containers and acts. TIMED: no bell rang, so a process may have
   died. Returns when to poll again if no bell rings; UINT64_MAX: never.  */
uint64_t turns_poll (struct gpu *gpu, bool timed);

/* With the mutex held.  */
void turns_write_figures (struct gpu *gpu, uint64_t now);
