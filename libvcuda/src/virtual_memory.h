/* Memory that cuMemCreate makes and cuMemMap maps.  */

#ifndef VCUDA_VIRTUAL_MEMORY_H
#define VCUDA_VIRTUAL_MEMORY_H

#include "real.h"

/* Adds what is held on each GPU to BYTES, which has VCUDA_MAX_GPUS entries.  */
void vcuda_virtual_memory_held (uint64_t *bytes);

/* In the child after a fork: the parent's blocks are not the child's.  */
void vcuda_virtual_memory_forget (void);

#endif
