/* NVML: a device's memory.  */

#include "engine/account.h"
#include "nvml/monitor.h"

nvmlReturn_t
nvmlDeviceGetMemoryInfo (nvmlDevice_t device, nvmlMemory_t *memory)
{
  REQUIRE_DEVICE_AND (device, memory);
  softgpu_lock (&monitor.tie);
  softgpu_reap (&monitor.tie);
  const struct softgpu_account account = softgpu_account (monitor.tie.state, device->gpu);
  softgpu_unlock (&monitor.tie);
  memory->total = gpu_of (device)->memory_bytes;
  memory->used = account.physical + account.resident;
  memory->free = memory->total - memory->used;
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetMemoryInfo_v2 (nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
  REQUIRE_DEVICE_AND (device, memory);
  REQUIRE (memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  nvmlMemory_t whole;
  REQUIRE_SUCCESS (nvmlDeviceGetMemoryInfo (device, &whole));
  uint64_t total = whole.total, used = whole.used;
  softgpu_lock (&monitor.tie);
  softgpu_show_cgroup (monitor.tie.state, device->gpu, softgpu_pid_namespace ("self"), &total,
                       &used);
  softgpu_unlock (&monitor.tie);
  *memory = (nvmlMemory_v2_t){
    .version = nvmlMemory_v2, .total = total, .used = used, .free = total - used
  };
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetBAR1MemoryInfo (nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
  REQUIRE_DEVICE_AND (device, memory);
  memory->bar1Total = memory->bar1Free = gpu_of (device)->memory_bytes;
  memory->bar1Used = 0;
  return NVML_SUCCESS;
}
