/* NVML: GPU instances created and destroyed.  */

#include <stdio.h>
#include <string.h>

#include "nvml/instances.h"

const char *
softgpu_root (void)
{
  static char root[4096];
  snprintf (root, sizeof root, "%s", monitor.paths.state);
  *strrchr (root, '/') = 0;
  return root;
}

bool
softgpu_may_change (nvmlDevice_t device)
{
  return softgpu_may_divide (softgpu_root (), gpu_of (device));
}

void *
softgpu_handle_of (unsigned part, bool compute)
{
  uintptr_t serial = monitor.tie.state->gpu[part].serial;
  return (void *) (serial << 16 | part << 2 | 2 | compute);
}

unsigned
softgpu_part_of (const void *handle, bool compute)
{
  uintptr_t number = (uintptr_t) handle, part = number >> 2 & 0x3fff;
  if (!monitor.users || (number & 3) != (2u | compute) || part >= monitor.tie.state->entries)
    return SOFTGPU_MAX_ENTRIES;
  const struct softgpu_gpu *found = &monitor.tie.state->gpu[part];
  bool lives = found->parent && found->serial == number >> 16 && (!compute || *found->uuid);
  return lives ? (unsigned) part : SOFTGPU_MAX_ENTRIES;
}

/* Creates an instance at START, or where it fits if START is NULL.  */
static nvmlReturn_t
create (nvmlDevice_t device, unsigned id, const unsigned *start, nvmlGpuInstance_t *instance)
{
  REQUIRE_SHAPE (shape, device, id);
  REQUIRE (instance, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (gpu_of (device)->divided, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  struct softgpu_state *state = monitor.tie.state;
  unsigned at = start ? *start : 0, part = SOFTGPU_MAX_ENTRIES;
  softgpu_lock (&monitor.tie);
  if (start ? softgpu_place_is_free (state, device->gpu, shape, at)
            : softgpu_last_place (state, device->gpu, shape, &at))
    {
      const struct softgpu_geometry *geometry = softgpu_geometry_of (gpu_of (device));
      part = softgpu_take_instance (state, softgpu_root (), device->gpu,
                                    softgpu_shapes[shape].slices,
                                    (uint64_t) geometry->memory_mib[shape] << 20);
    }
  if (part < SOFTGPU_MAX_ENTRIES)
    {
      state->gpu[part].profile = shape;
      state->gpu[part].start = at;
      *instance = softgpu_handle_of (part, false);
    }
  softgpu_unlock (&monitor.tie);
  return part < SOFTGPU_MAX_ENTRIES ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t
nvmlDeviceCreateGpuInstance (nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
  return create (device, id, NULL, instance);
}

nvmlReturn_t
nvmlDeviceCreateGpuInstanceWithPlacement (nvmlDevice_t device, unsigned int id,
                                          const nvmlGpuInstancePlacement_t *placement,
                                          nvmlGpuInstance_t *instance)
{
  REQUIRE_SHAPE (shape, device, id);
  REQUIRE (placement && placement->size == softgpu_shapes[shape].memory_slices,
           NVML_ERROR_INVALID_ARGUMENT);
  for (unsigned i = 0; i < softgpu_shapes[shape].starts; i++)
    if (softgpu_shapes[shape].start[i] == placement->start)
      return create (device, id, &placement->start, instance);
  return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t
nvmlGpuInstanceDestroy (nvmlGpuInstance_t instance)
{
  REQUIRE_PART (part, instance, false);
  struct softgpu_state *state = monitor.tie.state;
  REQUIRE (softgpu_may_divide (softgpu_root (), &state->gpu[part]), NVML_ERROR_NO_PERMISSION);
  softgpu_lock (&monitor.tie);
  bool stale = softgpu_part_of (instance, false) != part, busy = !stale && *state->gpu[part].uuid;
  if (!stale && !busy)
    softgpu_remove_instance (state, softgpu_root (), part);
  softgpu_unlock (&monitor.tie);
  return stale ? NVML_ERROR_INVALID_ARGUMENT : busy ? NVML_ERROR_IN_USE : NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetGpuInstances (nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances,
                           unsigned int *count)
{
  REQUIRE_SHAPE (shape, device, id);
  REQUIRE (instances && count, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (gpu_of (device)->divided, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  const struct softgpu_state *state = monitor.tie.state;
  *count = 0;
  softgpu_lock (&monitor.tie);
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    if (state->gpu[g].parent == device->gpu + 1 && state->gpu[g].profile == shape)
      instances[(*count)++] = softgpu_handle_of (g, false);
  softgpu_unlock (&monitor.tie);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetGpuInstanceById (nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
  REQUIRE_DEVICE_AND (device, instance);
  REQUIRE (gpu_of (device)->divided, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (softgpu_may_change (device), NVML_ERROR_NO_PERMISSION);
  const struct softgpu_state *state = monitor.tie.state;
  for (unsigned g = state->gpu_count; g < state->entries; g++)
    if (state->gpu[g].parent == device->gpu + 1 && state->gpu[g].instance == id)
      {
        *instance = softgpu_handle_of (g, false);
        return NVML_SUCCESS;
      }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t
nvmlGpuInstanceGetInfo (nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
  REQUIRE_PART (part, instance, false);
  REQUIRE (info, NVML_ERROR_INVALID_ARGUMENT);
  const struct softgpu_gpu *found = &monitor.tie.state->gpu[part];
  *info = (nvmlGpuInstanceInfo_t){
    .id = found->instance,
    .profileId = softgpu_shapes[found->profile].id,
    .placement = { .start = found->start, .size = softgpu_shapes[found->profile].memory_slices },
  };
  for (unsigned i = 0; i < monitor.tie.gpu_count; i++)
    if (monitor.device[i].gpu == found->parent - 1)
      info->device = &monitor.device[i];
  return NVML_SUCCESS;
}
