/* The container's view of its GPUs in NVML: memory and utilisation.  */

#include "view/nvml_gpu.h"

#include "charge/charge.h"
#include "gpu_time/time_bucket.h"
#include "pages/device.h"
#include "pages/pages.h"
#include "pages/slot.h"

nvmlReturn_t
vcuda_nvml_gpu (nvmlDevice_t device, int *gpu)
{
  char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
  *gpu = -1;
  nvmlReturn_t rc = real.nvmlDeviceGetUUID (device, uuid, sizeof uuid);
  if (rc == NVML_SUCCESS)
    *gpu = vcuda_gpu_of_uuid (uuid);
  return rc;
}

static int
gpu_of (nvmlDevice_t device)
{
  int gpu;
  vcuda_nvml_gpu (device, &gpu);
  return gpu;
}

/* What the driver counts for the container's cgroup, if it limits the cgroup to the share: then the
   second version of its answer is about the cgroup, and the first one about the GPU. Else 0.  */
static unsigned long long
counted_by_driver (nvmlDevice_t device, unsigned long long limit)
{
  nvmlMemory_t gpu;
  nvmlMemory_v2_t cgroup = { .version = nvmlMemory_v2 };
  if (real.nvmlDeviceGetMemoryInfo (device, &gpu) != NVML_SUCCESS
      || real.nvmlDeviceGetMemoryInfo_v2 (device, &cgroup) != NVML_SUCCESS
      || cgroup.total >= gpu.total || cgroup.total > limit)
    return 0;
  return cgroup.used;
}

static void
share_view (nvmlDevice_t device, int gpu, unsigned long long *total, unsigned long long *free_bytes,
            unsigned long long *used)
{
  vcuda_slots_reclaim_sometimes ();
  unsigned long long limit = vcuda_memory_limit (gpu);
  unsigned long long held = vcuda_held_bytes (gpu);
  unsigned long long counted = counted_by_driver (device, limit);
  held = counted > held ? counted : held; /* the driver does not count managed memory */
  *total = limit < *total ? limit : *total;
  *used = held < *total ? held : *total;
  *free_bytes = *total - *used;
}

nvmlReturn_t
vcuda_nvmlDeviceGetMemoryInfo (nvmlDevice_t device, nvmlMemory_t *memory)
{
  if (!vcuda_ready ())
    return NVML_ERROR_UNKNOWN;
  nvmlReturn_t rc = real.nvmlDeviceGetMemoryInfo (device, memory);
  int gpu = rc == NVML_SUCCESS ? gpu_of (device) : -1;
  if (gpu >= 0)
    share_view (device, gpu, &memory->total, &memory->free, &memory->used);
  return rc;
}

nvmlReturn_t
vcuda_nvmlDeviceGetMemoryInfo_v2 (nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
  if (!vcuda_ready ())
    return NVML_ERROR_UNKNOWN;
  nvmlReturn_t rc = real.nvmlDeviceGetMemoryInfo_v2 (device, memory);
  int gpu = rc == NVML_SUCCESS ? gpu_of (device) : -1;
  if (gpu >= 0)
    {
      share_view (device, gpu, &memory->total, &memory->free, &memory->used);
      memory->reserved = 0;
    }
  return rc;
}

nvmlReturn_t
vcuda_nvmlDeviceGetUtilizationRates (nvmlDevice_t device, nvmlUtilization_t *utilisation)
{
  if (!vcuda_ready ())
    return NVML_ERROR_UNKNOWN;
  nvmlReturn_t rc = real.nvmlDeviceGetUtilizationRates (device, utilisation);
  int gpu = rc == NVML_SUCCESS ? gpu_of (device) : -1;
  /* Where time is not paced it is not measured either, and the GPU's own figure is the best
     one.  */
  if (gpu < 0 || !vcuda_paced (gpu))
    return rc;
  unsigned share = vcuda_utilisation (gpu);
  /* The memory figure is the traffic of the whole GPU; a container's part of it is not known.  */
  utilisation->memory = utilisation->gpu ? utilisation->memory * share / 100 : 0;
  utilisation->gpu = share;
  return rc;
}
