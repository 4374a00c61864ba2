/* GPU instances and compute instances, as NVML's callers hold them.  */

#pragma once

#include "nvml/monitor.h"

/* The shape with the driver's ID, on a GPU that can be divided.  */
nvmlReturn_t softgpu_shape_of (nvmlDevice_t device, unsigned id, unsigned *shape);

/* Names SHAPE, the shape with the driver's ID; returns where DEVICE has none of it.  */
#define REQUIRE_SHAPE(shape, device, id)                                                           \
  unsigned shape;                                                                                  \
  REQUIRE_SUCCESS (softgpu_shape_of (device, id, &shape))

/* Whether this process may change the GPU's instances: root, and outside of a container.  */
bool softgpu_may_change (nvmlDevice_t device);

/* The driver root that holds the state file.  */
const char *softgpu_root (void);

/* The entry of the instance that a handle stands for; SOFTGPU_MAX_ENTRIES: it is stale, or
   invalid. A handle is a number: the entry that it names may be another's by now.  */
unsigned softgpu_part_of (const void *handle, bool compute);

/* Names PART, the entry of a handle's instance; returns where there is none.  */
#define REQUIRE_PART(part, handle, compute)                                                        \
  REQUIRE_MONITOR ();                                                                              \
  const unsigned part = softgpu_part_of (handle, compute);                                         \
  REQUIRE (part < SOFTGPU_MAX_ENTRIES, NVML_ERROR_INVALID_ARGUMENT)

/* The handle of the instance in entry PART, or of its compute instance.  */
void *softgpu_handle_of (unsigned part, bool compute);
