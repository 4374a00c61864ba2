/* Utilisation: busy time of the last second.  */

#pragma once

#include "state/state.h"

/* Adds RAN nanoseconds from FROM on.  */
void softgpu_count_busy (struct softgpu_period *period, uint64_t from, uint64_t ran);

/* Percent of the last second that were busy, rounded.  */
unsigned softgpu_percent_busy (const struct softgpu_period *period, uint64_t now);
