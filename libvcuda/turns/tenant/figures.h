/* The keeper's figures, for people: a file of text for each GPU, STATE_DIR/turns/UUID.

     AT_NS LOST_NS
     HELD_NS WAITED_FOR_TURN_NS WAITED_FOR_SHARE_NS LOST_NS FREE_NS FALSE_NS ID  for each container

   AT_NS is the CLOCK_MONOTONIC of the figures. All others are totals since the keeper took the
   container, or the GPU, over, but HELD_NS contains what earlier keepers counted; tenant_state.h
   and gpu_state.h define them. ID is the rest of its line. A new file replaces the old one, so a
   reader gets a whole one.

   `runtime_hook/vcuda_hook/live/turn_figures.py` reads it.  */

#pragma once

#include "tenant/tenant.h"

/* Makes the folder. On failure, and on every later one, there are no figures, and turns go on.  */
void figures_begin (const char *state_dir);

void figures_write (const char *uuid, uint64_t now, uint64_t lost_ns, struct tenant *const *tenants,
                    int count);
