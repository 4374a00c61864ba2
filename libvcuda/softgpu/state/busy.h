/* Utilisation: busy time of the last second.  */

#ifndef SOFTGPU_BUSY_H
#define SOFTGPU_BUSY_H

#include "state/state.h"

/* Adds RAN nanoseconds from FROM on.  */
void softgpu_count_busy (struct softgpu_period *period, uint64_t from, uint64_t ran);

/* Busy nanoseconds within the last second.  */
uint64_t softgpu_busy_in_last_second (const struct softgpu_period *period, uint64_t now);

#endif
