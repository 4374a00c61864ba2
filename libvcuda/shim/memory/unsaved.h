/* What keeps this process on the GPU, as the usage page shows it to the host: the driver has no
   checkpoint of managed memory, and before driver 610 none of a process that has opened memory of
   another one.  */

#pragma once

#include "pages/slot.h"

/* After managed memory was allocated or freed.  */
void vcuda_note_managed (void);

/* Memory of another process was opened. The note stays until this process ends.  */
void vcuda_note_ipc (void);

/* Into a slot that this process has just taken.  */
void vcuda_unsaved_enter (const struct vcuda_usage_slot *slot);

/* In the child after a fork.  */
void vcuda_unsaved_forget (void);
