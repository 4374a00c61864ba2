/* Ends of processes.

   The shim of each process keeps its container's usage page open for writing, and the kernel closes
   it when the process ends: inotify reports that. So the keeper need not poll whether a process
   lives. The event comes a moment before the kernel drops the process's locks.  */

#pragma once

#include "tenant/container.h"

/* Watches the page through INOTIFY. Where it cannot, the keeper polls often.  */
void ends_watch (int inotify, const char *state_dir, struct container *container);

/* An event of that watch came. A container that opens and closes its page without end is watched no
   longer.  */
void ends_note (int inotify, struct container *container);

/* How many have been noted; false: the container is not watched.  */
bool ends_read (const struct container *container, uint32_t *count);
