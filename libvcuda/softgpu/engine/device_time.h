/* A process's view of the GPUs' time: it submits commands, and waits for them.  */

#pragma once

#include "engine/engine.h"
#include "state/attach.h"
#include "state/busy.h"

uint64_t softgpu_now (void);
void softgpu_sleep_until (uint64_t end);

/* Occupies the calling thread for as long as a submission takes.  */
void softgpu_take_submit_time (const struct attachment *tie);

/* With the lock held, the GPU having been advanced: queues COMMAND of this process. Returns its
   number + 1; 0: too many are outstanding.  */
uint64_t softgpu_submit (struct attachment *tie, unsigned gpu, struct softgpu_command command);

/* With the lock held: advances the GPU, then looks whether this process's TARGET is reached.  */
bool softgpu_reached_now (struct attachment *tie, unsigned gpu, struct softgpu_target target);

/* Sleeps until this process's TARGET is reached. Called without the lock.  */
void softgpu_wait (struct attachment *tie, unsigned gpu, struct softgpu_target target);
