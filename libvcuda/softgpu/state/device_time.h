/* The device's time: one command at a time, in turns between processes. See device_time.c.

   All of these are called with the shared lock held, except softgpu_wait.  */

#ifndef SOFTGPU_DEVICE_TIME_H
#define SOFTGPU_DEVICE_TIME_H

#include "state/attach.h"

uint64_t softgpu_now (void);

/* Decides what the device did until NOW.  */
void softgpu_advance (struct softgpu_state *state, unsigned gpu, uint64_t now);

/* Adds DURATION_NS of GPU time to this process's queue, the device having been advanced; returns
   what must be served until the command is done.  */
uint64_t softgpu_submit (struct attachment *tie, unsigned gpu, uint64_t duration_ns);

bool softgpu_served (struct attachment *tie, unsigned gpu, uint64_t target_ns);

/* Sleeps until TARGET_NS of this process's GPU time is served. Called without the lock.  */
void softgpu_wait (struct attachment *tie, unsigned gpu, uint64_t target_ns);

/* Busy nanoseconds within the last second.  */
uint64_t softgpu_busy_in_last_second (const struct softgpu_period *period, uint64_t now);

#endif
