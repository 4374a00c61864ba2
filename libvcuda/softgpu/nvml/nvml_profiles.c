/* NVML: the profiles and places of GPU instances.  */

#include <string.h>

#include "nvml/instances.h"

nvmlReturn_t
softgpu_shape_of (nvmlDevice_t device, unsigned id, unsigned *shape)
{
  REQUIRE_DEVICE (device);
  REQUIRE (!softgpu_is_mig (device) && softgpu_geometry_of (gpu_of (device)),
           NVML_ERROR_NOT_SUPPORTED);
  *shape = softgpu_shape_by_id (id);
  REQUIRE (*shape < SOFTGPU_SHAPES, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetGpuInstanceProfileInfo (nvmlDevice_t device, unsigned int profile,
                                     nvmlGpuInstanceProfileInfo_t *info)
{
  REQUIRE_DEVICE_AND (device, info && profile < NVML_GPU_INSTANCE_PROFILE_COUNT);
  const struct softgpu_geometry *geometry = softgpu_geometry_of (gpu_of (device));
  REQUIRE (geometry && !softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  for (unsigned i = 0; i < SOFTGPU_SHAPES; i++)
    if (softgpu_shapes[i].name == profile)
      {
        *info = (nvmlGpuInstanceProfileInfo_t){
          .id = softgpu_shapes[i].id,
          .sliceCount = softgpu_shapes[i].slices,
          .instanceCount = softgpu_shapes[i].most,
          .multiprocessorCount = geometry->multiprocessors[i],
          .copyEngineCount = softgpu_shapes[i].slices,
          .memorySizeMB = geometry->memory_mib[i],
        };
        return NVML_SUCCESS;
      }
  return NVML_ERROR_NOT_SUPPORTED;
}

/* Versions 2 and 3 begin alike: a version, then what version 1 has, but for one field.  */
nvmlReturn_t
nvmlDeviceGetGpuInstanceProfileInfoV (nvmlDevice_t device, unsigned int profile,
                                      nvmlGpuInstanceProfileInfo_v2_t *info)
{
  nvmlGpuInstanceProfileInfo_t plain;
  REQUIRE (info, NVML_ERROR_INVALID_ARGUMENT);
  const unsigned version = info->version;
  REQUIRE (version == nvmlGpuInstanceProfileInfo_v2 || version == nvmlGpuInstanceProfileInfo_v3,
           NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  REQUIRE_SUCCESS (nvmlDeviceGetGpuInstanceProfileInfo (device, profile, &plain));
  const struct softgpu_geometry *geometry = softgpu_geometry_of (gpu_of (device));
#define COMMON                                                                                     \
  .version = version, .id = plain.id, .sliceCount = plain.sliceCount,                              \
  .instanceCount = plain.instanceCount, .multiprocessorCount = plain.multiprocessorCount,          \
  .copyEngineCount = plain.copyEngineCount, .memorySizeMB = plain.memorySizeMB
  nvmlGpuInstanceProfileInfo_v2_t second = { COMMON };
  nvmlGpuInstanceProfileInfo_v3_t third = { COMMON };
  softgpu_name_profile (geometry, softgpu_shape_by_id (plain.id), second.name, sizeof second.name);
  softgpu_name_profile (geometry, softgpu_shape_by_id (plain.id), third.name, sizeof third.name);
  if (version == nvmlGpuInstanceProfileInfo_v2)
    *info = second;
  else
    memcpy (info, &third, sizeof third);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetGpuInstanceProfileInfoByIdV (nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstanceProfileInfo_v2_t *info)
{
  REQUIRE_SHAPE (shape, device, id);
  return nvmlDeviceGetGpuInstanceProfileInfoV (device, softgpu_shapes[shape].name, info);
}

nvmlReturn_t
nvmlDeviceGetGpuInstancePossiblePlacements_v2 (nvmlDevice_t device, unsigned int id,
                                               nvmlGpuInstancePlacement_t *placements,
                                               unsigned int *count)
{
  REQUIRE_SHAPE (shape, device, id);
  REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  *count = softgpu_shapes[shape].starts;
  for (unsigned i = 0; placements && i < *count; i++)
    placements[i] = (nvmlGpuInstancePlacement_t){ .start = softgpu_shapes[shape].start[i],
                                                  .size = softgpu_shapes[shape].memory_slices };
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlDeviceGetGpuInstancePossiblePlacements,
            nvmlDeviceGetGpuInstancePossiblePlacements_v2);

nvmlReturn_t
nvmlDeviceGetGpuInstanceRemainingCapacity (nvmlDevice_t device, unsigned int id,
                                           unsigned int *count)
{
  REQUIRE_SHAPE (shape, device, id);
  REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (gpu_of (device)->divided, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  softgpu_lock (&monitor.tie);
  *count = softgpu_places_left (monitor.tie.state, device->gpu, shape);
  softgpu_unlock (&monitor.tie);
  return NVML_SUCCESS;
}
