/* What NVML says about the container's GPUs: its memory, its utilisation, its processes.  */

#include <string.h>

#include "charge.h"
#include "device.h"
#include "pace.h"
#include "pages.h"
#include "slot.h"

/* The limits entry of DEVICE; -1 when this container has no slice of it.  */
static int
gpu_of (nvmlDevice_t device)
{
  char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
  if (real.nvmlDeviceGetUUID (device, uuid, sizeof uuid) != NVML_SUCCESS)
    return -1;
  return vcuda_gpu_of_uuid (uuid);
}

static void
slice_view (int gpu, unsigned long long *total, unsigned long long *free_bytes,
            unsigned long long *used)
{
  vcuda_slots_reclaim_sometimes ();
  unsigned long long limit = vcuda_memory_limit (gpu);
  unsigned long long held = vcuda_held_bytes (gpu);
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
    slice_view (gpu, &memory->total, &memory->free, &memory->used);
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
      slice_view (gpu, &memory->total, &memory->free, &memory->used);
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
  /* Where time is not paced it is not measured either, and the GPU's own figure is the best.  */
  if (gpu < 0 || !vcuda_paced (gpu))
    return rc;
  unsigned share = vcuda_utilisation (gpu);
  /* The memory figure is the whole GPU's traffic; nobody's share of it is known.  */
  utilisation->memory = utilisation->gpu ? utilisation->memory * share / 100 : 0;
  utilisation->gpu = share;
  return rc;
}

struct process
{
  unsigned pid;
  unsigned long long bytes;
};

/* The container's live processes on GPU, at most VCUDA_MAX_PROCESSES.  */
static unsigned
processes_of (int gpu, struct process *list)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  vcuda_slots_reclaim_sometimes ();
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_ACQUIRE);
  unsigned count = 0;
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    {
      const struct vcuda_usage_slot *slot = &usage->slot[i];
      struct process process
          = { .pid = __atomic_load_n (&slot->pid, __ATOMIC_RELAXED),
              .bytes = __atomic_load_n (&slot->held_bytes[gpu], __ATOMIC_RELAXED) };
      if (process.pid && (process.bytes || __atomic_load_n (&slot->busy_ns[gpu], __ATOMIC_RELAXED)))
        list[count++] = process;
    }
  return count;
}

/* NVML's protocol: *COUNT is the room on entry and the number on return, and too little room is an
   error that says how much is needed. WRITE fills one entry.  */
static nvmlReturn_t
answer (int gpu, unsigned *count, void *infos, void (*write) (void *, unsigned, struct process))
{
  struct process list[VCUDA_MAX_PROCESSES];
  unsigned found = processes_of (gpu, list);
  unsigned room = infos ? *count : 0;
  *count = found;
  if (found > room)
    return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < found; i++)
    write (infos, i, list[i]);
  return NVML_SUCCESS;
}

static void
write_v1 (void *infos, unsigned at, struct process process)
{
  nvmlProcessInfo_v1_t *info = (nvmlProcessInfo_v1_t *) infos + at;
  *info = (nvmlProcessInfo_v1_t){ .pid = process.pid, .usedGpuMemory = process.bytes };
}

static void
write_v2 (void *infos, unsigned at, struct process process)
{
  const unsigned no_instance = 0xffffffff;
  nvmlProcessInfo_v2_t *info = (nvmlProcessInfo_v2_t *) infos + at;
  *info = (nvmlProcessInfo_v2_t){ .pid = process.pid,
                                  .usedGpuMemory = process.bytes,
                                  .gpuInstanceId = no_instance,
                                  .computeInstanceId = no_instance };
}

#define PROCESSES(call, write)                                                                     \
  do                                                                                               \
    {                                                                                              \
      if (!vcuda_ready ())                                                                         \
        return NVML_ERROR_UNKNOWN;                                                                 \
      int gpu = count ? gpu_of (device) : -1;                                                      \
      return gpu >= 0 ? answer (gpu, count, infos, write) : call;                                  \
    }                                                                                              \
  while (0)

nvmlReturn_t
vcuda_nvmlDeviceGetComputeRunningProcesses (nvmlDevice_t device, unsigned int *count,
                                            nvmlProcessInfo_v1_t *infos)
{
  PROCESSES (real.nvmlDeviceGetComputeRunningProcesses (device, count, infos), write_v1);
}

nvmlReturn_t
vcuda_nvmlDeviceGetComputeRunningProcesses_v2 (nvmlDevice_t device, unsigned int *count,
                                               nvmlProcessInfo_v2_t *infos)
{
  PROCESSES (real.nvmlDeviceGetComputeRunningProcesses_v2 (device, count, infos), write_v2);
}

nvmlReturn_t
vcuda_nvmlDeviceGetComputeRunningProcesses_v3 (nvmlDevice_t device, unsigned int *count,
                                               nvmlProcessInfo_t *infos)
{
  PROCESSES (real.nvmlDeviceGetComputeRunningProcesses_v3 (device, count, infos), write_v2);
}
