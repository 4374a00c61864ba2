/* NVML: memory errors. They happen when softgpu fail orders them.  */

#include "nvml/monitor.h"

nvmlReturn_t
nvmlDeviceGetEccMode (nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
  REQUIRE_DEVICE_AND (device, current && pending);
  *current = *pending = NVML_FEATURE_ENABLED;
  return NVML_SUCCESS;
}

ANSWER (GetDefaultEccMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)

nvmlReturn_t
nvmlDeviceGetTotalEccErrors (nvmlDevice_t device, nvmlMemoryErrorType_t type,
                             nvmlEccCounterType_t counter, unsigned long long *count)
{
  REQUIRE_DEVICE_AND (device, count && type < NVML_MEMORY_ERROR_TYPE_COUNT
                                  && counter < NVML_ECC_COUNTER_TYPE_COUNT);
  const struct softgpu_gpu *gpu = gpu_of (device);
  *count = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? gpu->ecc_corrected : gpu->ecc_uncorrected;
  return NVML_SUCCESS;
}

/* All of them happen in device memory.  */
nvmlReturn_t
nvmlDeviceGetMemoryErrorCounter (nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                 nvmlEccCounterType_t counter, nvmlMemoryLocation_t location,
                                 unsigned long long *count)
{
  REQUIRE (location < NVML_MEMORY_LOCATION_COUNT, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE_SUCCESS (nvmlDeviceGetTotalEccErrors (device, type, counter, count));
  if (location != NVML_MEMORY_LOCATION_DRAM)
    *count = 0;
  return NVML_SUCCESS;
}
