/* The moments of events: each stands in the entry of the record's command, until a later command
   takes the entry.  */

#pragma once

#include "driver/driver.h"

static inline unsigned
softgpu_gpu_of_event (CUevent event)
{
  return gpu_index (event->context->device);
}

/* All of these are called with the lock held. Takes the stamp over from the command, if it is
   there.  */
void softgpu_harvest (CUevent event);

/* The event gives up a record that will not be asked for any more.  */
void softgpu_abandon (CUevent event);

/* The entry that the next command of DEVICE takes is about to be written.  */
void softgpu_free_entry (struct device *device);

/* The command RECORD (its number + 1) is EVENT's last record.  */
void softgpu_set_record (CUevent event, uint64_t record);
