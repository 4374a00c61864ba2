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
  REQUIRE_DEVICE (device);
  REQUIRE (info && profile < NVML_GPU_INSTANCE_PROFILE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
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
static nvmlReturn_t
put (nvmlDevice_t device, unsigned profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
  nvmlGpuInstanceProfileInfo_t plain;
  REQUIRE (info, NVML_ERROR_INVALID_ARGUMENT);
  const unsigned version = info->version;
  REQUIRE (version == nvmlGpuInstanceProfileInfo_v2 || version == nvmlGpuInstanceProfileInfo_v3,
           NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlReturn_t rc = nvmlDeviceGetGpuInstanceProfileInfo (device, profile, &plain);
  REQUIRE (rc == NVML_SUCCESS, rc);
  const struct softgpu_geometry *geometry = softgpu_geometry_of (gpu_of (device));
  char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
  softgpu_name_profile (geometry, softgpu_shape_by_id (plain.id), name, sizeof name);
  if (version == nvmlGpuInstanceProfileInfo_v2)
    {
      *info = (nvmlGpuInstanceProfileInfo_v2_t){ .version = version,
                                                 .id = plain.id,
                                                 .sliceCount = plain.sliceCount,
                                                 .instanceCount = plain.instanceCount,
                                                 .multiprocessorCount = plain.multiprocessorCount,
                                                 .copyEngineCount = plain.copyEngineCount,
                                                 .memorySizeMB = plain.memorySizeMB };
      memcpy (info->name, name, sizeof info->name);
      return NVML_SUCCESS;
    }
  nvmlGpuInstanceProfileInfo_v3_t third = { .version = version,
                                            .id = plain.id,
                                            .sliceCount = plain.sliceCount,
                                            .instanceCount = plain.instanceCount,
                                            .multiprocessorCount = plain.multiprocessorCount,
                                            .copyEngineCount = plain.copyEngineCount,
                                            .memorySizeMB = plain.memorySizeMB };
  memcpy (third.name, name, sizeof third.name);
  memcpy (info, &third, sizeof third);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetGpuInstanceProfileInfoV (nvmlDevice_t device, unsigned int profile,
                                      nvmlGpuInstanceProfileInfo_v2_t *info)
{
  return put (device, profile, info);
}

nvmlReturn_t
nvmlDeviceGetGpuInstanceProfileInfoByIdV (nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstanceProfileInfo_v2_t *info)
{
  unsigned shape;
  nvmlReturn_t rc = softgpu_shape_of (device, id, &shape);
  return rc == NVML_SUCCESS ? put (device, softgpu_shapes[shape].name, info) : rc;
}

nvmlReturn_t
nvmlDeviceGetGpuInstancePossiblePlacements_v2 (nvmlDevice_t device, unsigned int id,
                                               nvmlGpuInstancePlacement_t *placements,
                                               unsigned int *count)
{
  unsigned shape;
  nvmlReturn_t rc = softgpu_shape_of (device, id, &shape);
  REQUIRE (rc == NVML_SUCCESS, rc);
  REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  *count = softgpu_shapes[shape].starts;
  for (unsigned i = 0; placements && i < *count; i++)
    placements[i] = (nvmlGpuInstancePlacement_t){ .start = softgpu_shapes[shape].start[i],
                                                  .size = softgpu_shapes[shape].memory_slices };
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetGpuInstancePossiblePlacements (nvmlDevice_t device, unsigned int id,
                                            nvmlGpuInstancePlacement_t *placements,
                                            unsigned int *count)
{
  return nvmlDeviceGetGpuInstancePossiblePlacements_v2 (device, id, placements, count);
}

nvmlReturn_t
nvmlDeviceGetGpuInstanceRemainingCapacity (nvmlDevice_t device, unsigned int id,
                                           unsigned int *count)
{
  unsigned shape;
  nvmlReturn_t rc = softgpu_shape_of (device, id, &shape);
  REQUIRE (rc == NVML_SUCCESS, rc);
  REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (gpu_of (device)->divided, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  softgpu_lock (&monitor.tie);
  *count = softgpu_places_left (monitor.tie.state, device->gpu, shape);
  softgpu_unlock (&monitor.tie);
  return NVML_SUCCESS;
}
