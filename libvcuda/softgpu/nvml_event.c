/* NVML: event sets. Nothing happens to a software GPU yet, so waiting for it is waiting.  */

#include <stdlib.h>
#include <time.h>

#include "monitor.h"

struct nvmlEventSet_st
{
  unsigned long long types;
};

nvmlReturn_t
nvmlEventSetCreate (nvmlEventSet_t *set)
{
  REQUIRE_MONITOR ();
  REQUIRE (set, NVML_ERROR_INVALID_ARGUMENT);
  *set = calloc (1, sizeof **set);
  return *set ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

nvmlReturn_t
nvmlEventSetFree (nvmlEventSet_t set)
{
  REQUIRE_MONITOR ();
  free (set);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceRegisterEvents (nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
  REQUIRE_DEVICE (device);
  REQUIRE (set, NVML_ERROR_INVALID_ARGUMENT);
  set->types |= types;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlEventSetWait_v2 (nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
  REQUIRE_MONITOR ();
  REQUIRE (set && data, NVML_ERROR_INVALID_ARGUMENT);
  struct timespec left = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000l };
  while (nanosleep (&left, &left) != 0)
    ;
  return NVML_ERROR_TIMEOUT;
}

nvmlReturn_t
nvmlEventSetWait (nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
  return nvmlEventSetWait_v2 (set, data, timeout_ms);
}
