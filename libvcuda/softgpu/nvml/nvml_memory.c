/* NVML: a device's memory.  */

#include "engine/account.h"
#include "nvml/monitor.h"

/* Bytes of live processes that lie on DEVICE.  */
static uint64_t
used_on (nvmlDevice_t device)
{
  struct attachment *tie = &monitor.tie;
  softgpu_lock (tie);
  softgpu_reap (tie);
  struct softgpu_account account = softgpu_account (tie->state, device->gpu);
  softgpu_unlock (tie);
  return account.physical + account.resident;
}

nvmlReturn_t
nvmlDeviceGetMemoryInfo (nvmlDevice_t device, nvmlMemory_t *memory)
{
  REQUIRE_DEVICE (device);
  REQUIRE (memory, NVML_ERROR_INVALID_ARGUMENT);
  memory->total = gpu_of (device)->memory_bytes;
  memory->used = used_on (device);
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetMemoryInfo_v2 (nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
  REQUIRE_DEVICE (device);
  REQUIRE (memory, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  uint64_t total = gpu_of (device)->memory_bytes, used = used_on (device);
  softgpu_lock (&monitor.tie);
  softgpu_show_cgroup (monitor.tie.state, device->gpu, softgpu_pid_namespace ("self"), &total,
                       &used);
  softgpu_unlock (&monitor.tie);
  memory->total = total;
  memory->reserved = 0;
  memory->used = used;
  memory->free = total - used;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetBAR1MemoryInfo (nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
  REQUIRE_DEVICE (device);
  REQUIRE (memory, NVML_ERROR_INVALID_ARGUMENT);
  memory->bar1Total = memory->bar1Free = gpu_of (device)->memory_bytes;
  memory->bar1Used = 0;
  return NVML_SUCCESS;
}
