/* NVML: compute instances. A GPU instance has room for one here, which takes all of it: callers
   that give each container an instance of its own ask for no other.  */

#include "nvml/instances.h"

/* The slices of each compute profile, NVML_COMPUTE_INSTANCE_PROFILE_...  */
static const unsigned slices_of[NVML_COMPUTE_INSTANCE_PROFILE_COUNT]
    = { 1, 2, 3, 4, 7, 8, 6, 1, 7 };

/* The number of all profiles: none has so many slices.  */
static unsigned
profile_of (const struct softgpu_gpu *part)
{
  unsigned profile = 0;
  while (profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && slices_of[profile] != part->slices)
    profile++;
  return profile;
}

nvmlReturn_t
nvmlGpuInstanceGetComputeInstanceProfileInfo (nvmlGpuInstance_t instance, unsigned int profile,
                                              unsigned int engines,
                                              nvmlComputeInstanceProfileInfo_t *info)
{
  REQUIRE_PART (part, instance, false);
  REQUIRE (info && profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT
               && engines < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT,
           NVML_ERROR_INVALID_ARGUMENT);
  const struct softgpu_gpu *found = &monitor.tie.state->gpu[part];
  REQUIRE (profile == profile_of (found), NVML_ERROR_NOT_SUPPORTED);
  const struct softgpu_geometry *geometry
      = softgpu_geometry_of (&monitor.tie.state->gpu[found->parent - 1]);
  *info = (nvmlComputeInstanceProfileInfo_t){
    .id = profile,
    .sliceCount = found->slices,
    .instanceCount = 1,
    .multiprocessorCount = geometry ? geometry->multiprocessors[found->profile] : 0,
    .sharedCopyEngineCount = found->slices,
  };
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlGpuInstanceGetComputeInstanceRemainingCapacity (nvmlGpuInstance_t instance,
                                                    unsigned int profile, unsigned int *count)
{
  REQUIRE_PART (part, instance, false);
  REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);
  const struct softgpu_gpu *found = &monitor.tie.state->gpu[part];
  REQUIRE (profile == profile_of (found), NVML_ERROR_NOT_SUPPORTED);
  *count = !*found->uuid;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlGpuInstanceCreateComputeInstance (nvmlGpuInstance_t instance, unsigned int profile,
                                      nvmlComputeInstance_t *compute)
{
  REQUIRE_PART (part, instance, false);
  REQUIRE (compute, NVML_ERROR_INVALID_ARGUMENT);
  struct softgpu_state *state = monitor.tie.state;
  REQUIRE (softgpu_may_divide (softgpu_root (), &state->gpu[part]), NVML_ERROR_NO_PERMISSION);
  REQUIRE (profile == profile_of (&state->gpu[part]), NVML_ERROR_NOT_SUPPORTED);
  softgpu_lock (&monitor.tie);
  bool added = softgpu_part_of (instance, false) == part && !*state->gpu[part].uuid
               && softgpu_add_compute (state, softgpu_root (), part);
  if (added)
    *compute = softgpu_handle_of (part, true);
  softgpu_unlock (&monitor.tie);
  return added ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t
nvmlGpuInstanceCreateComputeInstanceWithPlacement (nvmlGpuInstance_t instance, unsigned int profile,
                                                   const nvmlComputeInstancePlacement_t *placement,
                                                   nvmlComputeInstance_t *compute)
{
  REQUIRE_ARGUMENTS (placement && placement->start == 0);
  return nvmlGpuInstanceCreateComputeInstance (instance, profile, compute);
}

/* Whether a process has a context on entry PART of the state. Needs the lock.  */
static bool
in_use (unsigned part)
{
  softgpu_reap (&monitor.tie);
  const struct softgpu_state *state = monitor.tie.state;
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    if (state->slot[slot].kind != SOFTGPU_FREE && state->slot[slot].gpu[part].contexts)
      return true;
  return false;
}

nvmlReturn_t
nvmlComputeInstanceDestroy (nvmlComputeInstance_t compute)
{
  REQUIRE_PART (part, compute, true);
  struct softgpu_state *state = monitor.tie.state;
  REQUIRE (softgpu_may_divide (softgpu_root (), &state->gpu[part]), NVML_ERROR_NO_PERMISSION);
  softgpu_lock (&monitor.tie);
  bool stale = softgpu_part_of (compute, true) != part;
  bool busy = !stale && in_use (part);
  if (!stale && !busy)
    softgpu_remove_compute (state, softgpu_root (), part);
  softgpu_unlock (&monitor.tie);
  return stale ? NVML_ERROR_INVALID_ARGUMENT : busy ? NVML_ERROR_IN_USE : NVML_SUCCESS;
}

nvmlReturn_t
nvmlGpuInstanceGetComputeInstances (nvmlGpuInstance_t instance, unsigned int profile,
                                    nvmlComputeInstance_t *computes, unsigned int *count)
{
  REQUIRE_PART (part, instance, false);
  REQUIRE (computes && count, NVML_ERROR_INVALID_ARGUMENT);
  const struct softgpu_gpu *found = &monitor.tie.state->gpu[part];
  REQUIRE (profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT, NVML_ERROR_NOT_SUPPORTED);
  *count = *found->uuid && profile == profile_of (found);
  if (*count)
    *computes = softgpu_handle_of (part, true);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlGpuInstanceGetComputeInstanceById (nvmlGpuInstance_t instance, unsigned int id,
                                       nvmlComputeInstance_t *compute)
{
  REQUIRE_PART (part, instance, false);
  REQUIRE (compute, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (id == 0 && *monitor.tie.state->gpu[part].uuid, NVML_ERROR_NOT_FOUND);
  *compute = softgpu_handle_of (part, true);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlComputeInstanceGetInfo_v2 (nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info)
{
  REQUIRE_PART (part, compute, true);
  REQUIRE (info, NVML_ERROR_INVALID_ARGUMENT);
  nvmlGpuInstanceInfo_t whole;
  REQUIRE_SUCCESS (nvmlGpuInstanceGetInfo (softgpu_handle_of (part, false), &whole));
  const struct softgpu_gpu *found = &monitor.tie.state->gpu[part];
  *info = (nvmlComputeInstanceInfo_t){ .device = whole.device,
                                       .gpuInstance = softgpu_handle_of (part, false),
                                       .profileId = profile_of (found),
                                       .placement = { .size = found->slices } };
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlComputeInstanceGetInfo, nvmlComputeInstanceGetInfo_v2);
