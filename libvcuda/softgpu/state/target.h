/* What a process waits for: commands of its queue.  */

#ifndef SOFTGPU_TARGET_H
#define SOFTGPU_TARGET_H

#include "state/queue.h"

struct softgpu_target
{
  uint64_t below; /* a command's number + 1; 0: nothing */
  enum
  {
    SOFTGPU_ONE,      /* that command */
    SOFTGPU_ALL,      /* every command up to it */
    SOFTGPU_BLOCKING, /* every one that the legacy default stream waits for */
  } scope;
};

bool softgpu_reached (struct softgpu_state *state, unsigned gpu, unsigned slot,
                      struct softgpu_target target);

#endif
