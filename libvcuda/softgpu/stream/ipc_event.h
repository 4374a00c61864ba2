/* Events that several processes see: the last record of one stands in a page that all map.  */

#pragma once

#include "driver/driver.h"

struct shared_event
{
  _Atomic uint64_t record; /* number + 1 of its recorder's command */
  _Atomic uint32_t slot;
  _Atomic uint32_t generation; /* 0: never recorded */
  uint32_t gpu;
};

/* With the shared lock held: EVENT was recorded by this process.  */
void softgpu_publish_record (CUevent event);

/* Whether another process recorded EVENT last.  */
bool softgpu_recorded_elsewhere (CUevent event);

/* Whether that is done; and sleeping until it is.  */
bool softgpu_done_elsewhere (CUevent event);
void softgpu_wait_elsewhere (CUevent event);
