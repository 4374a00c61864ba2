/* Repairs a usage page that is truncated while it is mapped.  */

#pragma once

#include "vcuda_abi.h"

/* Repairs USAGE, mapped from VCUDA_GUEST_USAGE, whenever this process finds a part of it
   missing. A program that has a handler for SIGBUS, set before or after, keeps it, and ends as
   it chooses.  */
void vcuda_watch_page (struct vcuda_usage *usage);
