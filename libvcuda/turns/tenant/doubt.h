/* How far the marks of a container are believed.

   A tenant that stays busy for longer than any estimate explains is not believed for a while, nor
   is one that is busy without a turn again and again, or that has cut its page short. Its turns end
   by the clock then, and the others wait for its queue for a fixed time. What it held until then is
   charged, so it pays for it in later turns.  */

#pragma once

#include "tenant/tenant_state.h"

/* Reads the signals of its page. LIVE: leave out the marks of processes that have ended.  */
void doubt_read (struct tenant *tenant, uint64_t now, bool live);

/* Whether its queue is believed to hold work; ends that belief where others wait for too long.  */
bool doubt_is_busy (struct tenant *tenant, uint64_t now);

/* Its turn has ended, or none begins: some false marks are an honest container's.  */
void doubt_excuse (struct tenant *tenant);
