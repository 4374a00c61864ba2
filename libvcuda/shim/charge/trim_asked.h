/* Whether the turn keeper has asked for what pools keep (room.h).  */

#ifndef VCUDA_TRIM_ASKED_H
#define VCUDA_TRIM_ASKED_H

#include <stdbool.h>

/* Whether it has asked for that of GPU since the last call.  */
bool vcuda_trim_is_asked (int gpu);

/* What was asked before concerns no pool: called before the first one is made.  */
void vcuda_trims_follow (void);

#endif
