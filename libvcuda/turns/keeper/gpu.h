/* The GPUs and their containers. Turns: turns.h.  */

#pragma once

#include "tenant/container.h"

struct gpu;

/* The GPU with this UUID, made at the first call; NULL: out of memory.  */
struct gpu *gpu_of (const char *uuid);

/* The container's entry GPU_INDEX takes part from now on.  */
void gpu_add (struct gpu *gpu, struct container *container, unsigned index);

/* It does no longer: its pages may be closed afterwards.  */
void gpu_remove (struct gpu *gpu, const struct container *container);

/* The thread of each of the container's GPUs polls at once.  */
void gpu_poll_now (const struct container *container);

/* Ends all turns: every container goes by its own rate again.  */
void gpu_end_all (void);
