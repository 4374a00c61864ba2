/* NVML: GPUs in MIG mode, and their MIG devices, which have handles as GPUs do.  */

#include "nvml/monitor.h"

#define REQUIRE_MIG(device)                                                                        \
  REQUIRE_DEVICE (device);                                                                         \
  REQUIRE (softgpu_is_mig (device), NVML_ERROR_INVALID_ARGUMENT)

#define MIG_ANSWER(function, value)                                                                \
  nvmlReturn_t nvmlDevice##function (nvmlDevice_t device, unsigned *answer)                        \
  {                                                                                                \
    REQUIRE_MIG (device);                                                                          \
    REQUIRE (answer, NVML_ERROR_INVALID_ARGUMENT);                                                 \
    *answer = (value);                                                                             \
    return NVML_SUCCESS;                                                                           \
  }

MIG_ANSWER (GetGpuInstanceId, gpu_of (device)->instance)
MIG_ANSWER (GetComputeInstanceId, 0)

nvmlReturn_t
nvmlDeviceGetMigMode (nvmlDevice_t device, unsigned *current, unsigned *pending)
{
  REQUIRE_DEVICE_AND (device, current && pending);
  REQUIRE (!softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  *current = *pending = gpu_of (device)->divided ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
  return NVML_SUCCESS;
}

ANSWER (GetMaxMigDeviceCount, unsigned, gpu_of (device)->divided ? SOFTGPU_MIG_DEVICES : 0)
ANSWER (IsMigDeviceHandle, unsigned, softgpu_is_mig (device))

nvmlReturn_t
nvmlDeviceGetMigDeviceHandleByIndex (nvmlDevice_t device, unsigned index, nvmlDevice_t *mig)
{
  REQUIRE_DEVICE_AND (device, mig && index < SOFTGPU_MIG_DEVICES);
  nvmlDevice_t first = monitor.device + monitor.tie.gpu_count;
  for (nvmlDevice_t found = first; found < first + monitor.parts; found++)
    if (softgpu_valid (found) && gpu_of (found)->parent == device->gpu + 1
        && gpu_of (found)->number == index)
      {
        *mig = found;
        return NVML_SUCCESS;
      }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t
nvmlDeviceGetDeviceHandleFromMigDeviceHandle (nvmlDevice_t mig, nvmlDevice_t *device)
{
  REQUIRE_MIG (mig);
  REQUIRE (device, NVML_ERROR_INVALID_ARGUMENT);
  for (unsigned i = 0; i < monitor.tie.gpu_count; i++)
    if (gpu_of (mig)->parent == monitor.device[i].gpu + 1)
      *device = &monitor.device[i];
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetAttributes_v2 (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
  REQUIRE_MIG (device);
  REQUIRE (attributes, NVML_ERROR_INVALID_ARGUMENT);
  const struct softgpu_gpu *gpu = gpu_of (device);
  const struct softgpu_geometry *geometry = softgpu_geometry_of (gpu);
  unsigned multiprocessors = geometry ? geometry->multiprocessors[gpu->profile] : 16 * gpu->slices;
  *attributes = (nvmlDeviceAttributes_t){ .multiprocessorCount = multiprocessors,
                                          .gpuInstanceSliceCount = gpu->slices,
                                          .computeInstanceSliceCount = gpu->slices,
                                          .memorySizeMB = gpu->memory_bytes >> 20 };
  return NVML_SUCCESS;
}
