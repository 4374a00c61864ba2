/* NVML: ordered failures.  */

#include "nvml/monitor.h"

int softgpu_gate (const char *name, nvmlDevice_t first);

/* FIRST: the call's first argument, whatever it is.  */
int
softgpu_gate (const char *name, nvmlDevice_t first)
{
  if (!monitor.users)
    return 0;
  return softgpu_ordered_error (monitor.tie.state, name,
                                softgpu_valid (first) ? first->gpu + 1 : 0);
}
