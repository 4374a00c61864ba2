/* NVML: ordered failures.  */

#include "monitor.h"

int softgpu_gate (const char *name);

int
softgpu_gate (const char *name)
{
  return monitor.users ? softgpu_ordered_error (monitor.tie.state, name) : 0;
}
