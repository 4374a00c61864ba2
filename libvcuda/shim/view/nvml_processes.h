/* Lists of the container's processes.  */

#pragma once

#include "real.h"

struct vcuda_process
{
  unsigned pid; /* in the container's pid namespace */
  unsigned long long bytes;
};

typedef void vcuda_write_process (void *entries, unsigned at, struct vcuda_process process);

/* Returns a list of the container's compute processes on DEVICE by NVML's protocol: *COUNT is the
   room on entry and the number on return; too little room is NVML_ERROR_INSUFFICIENT_SIZE. WRITE
   fills one entry; with NULL the list is empty, as it is for a GPU without a share.  */
nvmlReturn_t vcuda_nvml_list (nvmlDevice_t device, unsigned *count, void *entries,
                              vcuda_write_process *write);
