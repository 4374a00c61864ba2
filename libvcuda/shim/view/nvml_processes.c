/* NVML's lists of processes show the container's own. The driver's lists name every container's
   processes, perhaps by pids of the host, so the driver is not asked.

   The slots of the usage page list compute processes. Graphics and MPS lists are empty: a process
   that uses the GPU through CUDA is in the compute list.  */

#include "view/nvml_processes.h"

#include "pages/pages.h"
#include "pages/slot.h"
#include "view/nvml_gpu.h"

#define NO_INSTANCE 0xffffffffu

/* The container's live processes on GPU, at most VCUDA_MAX_PROCESSES.  */
static unsigned
processes_of (int gpu, struct vcuda_process *list)
{
  struct vcuda_usage *usage = vcuda_pages.usage;
  vcuda_slots_reclaim_sometimes ();
  unsigned used = __atomic_load_n (&usage->slots_used, __ATOMIC_ACQUIRE);
  unsigned count = 0;
  for (unsigned i = 0; i < used && i < VCUDA_MAX_PROCESSES; i++)
    {
      const struct vcuda_usage_slot *slot = &usage->slot[i];
      struct vcuda_process process
          = { .pid = __atomic_load_n (&slot->pid, __ATOMIC_RELAXED),
              .bytes = __atomic_load_n (&slot->held_bytes[gpu], __ATOMIC_RELAXED) };
      if (process.pid && !vcuda_slot_is_off (i)
          && (process.bytes || __atomic_load_n (&slot->busy_ns[gpu], __ATOMIC_RELAXED)))
        list[count++] = process;
    }
  return count;
}

nvmlReturn_t
vcuda_nvml_list (nvmlDevice_t device, unsigned *count, void *entries, vcuda_write_process *write)
{
  struct vcuda_process list[VCUDA_MAX_PROCESSES];
  int gpu;
  if (!vcuda_ready ())
    return NVML_ERROR_UNKNOWN;
  nvmlReturn_t rc = vcuda_nvml_gpu (device, &gpu);
  if (rc != NVML_SUCCESS)
    return rc;
  if (!count)
    return NVML_ERROR_INVALID_ARGUMENT;
  unsigned found = write && gpu >= 0 ? processes_of (gpu, list) : 0;
  unsigned room = entries ? *count : 0;
  *count = found;
  if (found > room)
    return NVML_ERROR_INSUFFICIENT_SIZE;
  for (unsigned i = 0; i < found; i++)
    write (entries, i, list[i]);
  return NVML_SUCCESS;
}

static void
write_v1 (void *entries, unsigned at, struct vcuda_process process)
{
  nvmlProcessInfo_v1_t *info = (nvmlProcessInfo_v1_t *) entries + at;
  *info = (nvmlProcessInfo_v1_t){ .pid = process.pid, .usedGpuMemory = process.bytes };
}

#define WRITER(name, type)                                                                         \
  static void name (void *entries, unsigned at, struct vcuda_process process)                      \
  {                                                                                                \
    type *info = (type *) entries + at;                                                            \
    *info = (type){ .pid = process.pid,                                                            \
                    .usedGpuMemory = process.bytes,                                                \
                    .gpuInstanceId = NO_INSTANCE,                                                  \
                    .computeInstanceId = NO_INSTANCE };                                            \
  }

WRITER (write_v2, nvmlProcessInfo_v2_t)
WRITER (write_detail, nvmlProcessDetail_v1_t)

#define LIST(kind, type, write)                                                                    \
  nvmlReturn_t vcuda_nvmlDeviceGet##kind (nvmlDevice_t device, unsigned int *count, type *infos)   \
  {                                                                                                \
    return vcuda_nvml_list (device, count, infos, write);                                          \
  }

LIST (ComputeRunningProcesses, nvmlProcessInfo_v1_t, write_v1)
LIST (ComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, write_v2)
LIST (ComputeRunningProcesses_v3, nvmlProcessInfo_t, write_v2)
LIST (GraphicsRunningProcesses, nvmlProcessInfo_v1_t, NULL)
LIST (GraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, NULL)
LIST (GraphicsRunningProcesses_v3, nvmlProcessInfo_t, NULL)
LIST (MPSComputeRunningProcesses, nvmlProcessInfo_v1_t, NULL)
LIST (MPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, NULL)
LIST (MPSComputeRunningProcesses_v3, nvmlProcessInfo_t, NULL)

nvmlReturn_t
vcuda_nvmlDeviceGetRunningProcessDetailList (nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
  enum
  {
    COMPUTE,
    GRAPHICS,
    MPS
  };
  if (!list || list->version != nvmlProcessDetailList_v1 || list->mode > MPS)
    return NVML_ERROR_INVALID_ARGUMENT;
  return vcuda_nvml_list (device, &list->numProcArrayEntries, list->procArray,
                          list->mode == COMPUTE ? write_detail : NULL);
}

/* The entries that policy.list refuses.  */
nvmlReturn_t
vcuda_nvml_refused (void)
{
  return vcuda_ready () ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNKNOWN;
}
