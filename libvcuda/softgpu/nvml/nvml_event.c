/* NVML: event sets. What happens to a software GPU is what softgpu fail orders.  */

#include <stdlib.h>
#include <time.h>

#include "nvml/monitor.h"

#define POLL_NS 100000000 /* between two polls for events */

struct nvmlEventSet_st
{
  unsigned long long
      types[SOFTGPU_MAX_ENTRIES];     /* by index of the visible device; 0: not asked for */
  unsigned seen[SOFTGPU_MAX_ENTRIES]; /* events reported, or older than the registration */
};

nvmlReturn_t
nvmlEventSetCreate (nvmlEventSet_t *set)
{
  REQUIRE_ARGUMENTS (set);
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
  REQUIRE_DEVICE_AND (device, set);
  REQUIRE (!softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  if (!set->types[device->index])
    set->seen[device->index] = gpu_of (device)->xid_count;
  set->types[device->index] |= types;
  return NVML_SUCCESS;
}

static bool
next_event (nvmlEventSet_t set, nvmlEventData_t *data)
{
  for (unsigned i = 0; i < monitor.tie.gpu_count; i++)
    {
      nvmlDevice_t device = &monitor.device[i];
      if (!(set->types[i] & nvmlEventTypeXidCriticalError)
          || set->seen[i] == gpu_of (device)->xid_count)
        continue;
      /* The GPU keeps the last SOFTGPU_XIDS events only.  */
      if (gpu_of (device)->xid_count - set->seen[i] > SOFTGPU_XIDS)
        set->seen[i] = gpu_of (device)->xid_count - SOFTGPU_XIDS;
      unsigned event = set->seen[i]++;
      *data = (nvmlEventData_t){ .device = device,
                                 .eventType = nvmlEventTypeXidCriticalError,
                                 .eventData = gpu_of (device)->xid[event % SOFTGPU_XIDS],
                                 .gpuInstanceId = 0xffffffff,
                                 .computeInstanceId = 0xffffffff };
      return true;
    }
  return false;
}

nvmlReturn_t
nvmlEventSetWait_v2 (nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
  REQUIRE_ARGUMENTS (set && data);
  const uint64_t end = softgpu_now () + timeout_ms * 1000000ull;
  for (;;)
    {
      if (next_event (set, data))
        return NVML_SUCCESS;
      uint64_t now = softgpu_now ();
      if (now >= end)
        return NVML_ERROR_TIMEOUT;
      uint64_t pause = end - now < POLL_NS ? end - now : POLL_NS;
      nanosleep (&(struct timespec){ .tv_nsec = (long) pause }, NULL);
    }
}

ALSO_NAMED (nvmlEventSetWait, nvmlEventSetWait_v2);
