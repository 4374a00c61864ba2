/* NVML: GPUs in MIG mode, as softgpu create --mig said. A MIG device has a name and an equal part
   of its GPU's memory; nothing runs on it.  */

#include <stdio.h>
#include <string.h>

#include "monitor.h"

/* Whether DEVICE is a MIG device's handle.  */
static bool
is_mig (nvmlDevice_t device)
{
  nvmlDevice_t first = &monitor.mig[0][0];
  return device >= first && device < first + SOFTGPU_MAX_GPUS * SOFTGPU_MIG_DEVICES;
}

nvmlReturn_t
nvmlDeviceGetMigMode (nvmlDevice_t device, unsigned *current, unsigned *pending)
{
  REQUIRE_DEVICE (device);
  REQUIRE (current && pending, NVML_ERROR_INVALID_ARGUMENT);
  *current = *pending
      = gpu_of (device)->mig_devices ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetMaxMigDeviceCount (nvmlDevice_t device, unsigned *count)
{
  REQUIRE_DEVICE (device);
  REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);
  *count = gpu_of (device)->mig_devices ? SOFTGPU_MIG_DEVICES : 0;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetMigDeviceHandleByIndex (nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
  REQUIRE_DEVICE (device);
  REQUIRE (mig && index < SOFTGPU_MIG_DEVICES, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (index < gpu_of (device)->mig_devices, NVML_ERROR_NOT_FOUND);
  *mig = &monitor.mig[device->index][index];
  **mig = (struct nvmlDevice_st){ .gpu = device->gpu, .index = index };
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetDeviceHandleFromMigDeviceHandle (nvmlDevice_t mig, nvmlDevice_t *device)
{
  REQUIRE_MONITOR ();
  REQUIRE (is_mig (mig) && device, NVML_ERROR_INVALID_ARGUMENT);
  *device = &monitor.device[(mig - &monitor.mig[0][0]) / SOFTGPU_MIG_DEVICES];
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceIsMigDeviceHandle (nvmlDevice_t device, unsigned *answer)
{
  REQUIRE_MONITOR ();
  REQUIRE ((softgpu_valid (device) || is_mig (device)) && answer, NVML_ERROR_INVALID_ARGUMENT);
  *answer = is_mig (device);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetUUID (nvmlDevice_t device, char *uuid, unsigned int length)
{
  REQUIRE_MONITOR ();
  REQUIRE (uuid, NVML_ERROR_INVALID_ARGUMENT);
  char text[64];
  if (is_mig (device))
    /* The GPU's, with the device's number in it: a UUID of its own that a seed gives again.  */
    snprintf (text, sizeof text, "MIG-%u%s", device->index, gpu_of (device)->uuid + 5);
  else
    {
      REQUIRE_DEVICE (device);
      snprintf (text, sizeof text, "%s", gpu_of (device)->uuid);
    }
  REQUIRE (strlen (text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
  strcpy (uuid, text);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetMemoryInfo (nvmlDevice_t device, nvmlMemory_t *memory)
{
  REQUIRE_MONITOR ();
  REQUIRE (memory, NVML_ERROR_INVALID_ARGUMENT);
  if (is_mig (device))
    {
      memory->total = memory->free = gpu_of (device)->memory_bytes / gpu_of (device)->mig_devices;
      memory->used = 0;
      return NVML_SUCCESS;
    }
  REQUIRE_DEVICE (device);
  memory->total = gpu_of (device)->memory_bytes;
  memory->used = softgpu_used (device);
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}
