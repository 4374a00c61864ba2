#ifndef VCUDA_VIRTUAL_MEMORY_H
#define VCUDA_VIRTUAL_MEMORY_H

#include "real.h"

/* In the child after a fork: the parent's blocks are not the child's.  */
void vcuda_virtual_memory_forget (void);

#endif
