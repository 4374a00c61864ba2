/* NVML: which processes use a device.  */

#include <sys/time.h>

#include "engine/account.h"
#include "engine/process_state.h"
#include "nvml/monitor.h"

/* An MPS server stands for its clients, which are not listed.  */
static uint64_t
of_clients (const struct softgpu_state *state, const struct softgpu_account *account,
            unsigned server, unsigned gpu)
{
  uint64_t held = 0;
  for (unsigned slot = 0; slot < state->slots_used; slot++)
    if (state->slot[slot].kind == SOFTGPU_CUDA && state->slot[slot].mps_server == server + 1)
      held += softgpu_on_device (account, &state->slot[slot].gpu[gpu]);
  return held;
}

static unsigned
processes_of (nvmlDevice_t device, struct process list[SOFTGPU_MAX_SLOTS])
{
  struct attachment *tie = &monitor.tie;
  uint64_t namespace[SOFTGPU_MAX_SLOTS];
  unsigned count = 0, seen = 0;
  softgpu_lock (tie);
  softgpu_reap (tie);
  uint64_t now = softgpu_now ();
  softgpu_advance (tie->state, device->gpu, now);
  struct softgpu_account account = softgpu_account (tie->state, device->gpu);
  for (unsigned slot = 0; slot < tie->state->slots_used; slot++)
    {
      const struct softgpu_slot *process = &tie->state->slot[slot];
      const struct softgpu_slot_gpu *use = &process->gpu[device->gpu];
      bool server = process->kind == SOFTGPU_MPS_SERVER;
      if ((process->kind != SOFTGPU_CUDA && !server) || process->mps_server || !use->contexts
          || softgpu_off_gpu (process))
        continue;
      namespace[count] = process->pid_namespace;
      list[count++] = (struct process){
        .pid = process->pid,
        .held_bytes = softgpu_on_device (&account, use)
                      + (server ? of_clients (tie->state, &account, slot, device->gpu) : 0),
        .percent = softgpu_percent_busy (use->period, now),
      };
    }
  softgpu_unlock (tie);
  /* Reading /proc may sleep, which the lock's holder must not.  */
  for (unsigned i = 0; i < count; i++)
    {
      struct process process = list[i];
      process.pid = softgpu_pid_here (process.pid, namespace[i]);
      if (process.pid)
        list[seen++] = process;
    }
  return seen;
}

nvmlReturn_t
softgpu_list_processes (nvmlDevice_t device, unsigned *count, const void *entries,
                        struct process list[SOFTGPU_MAX_SLOTS])
{
  REQUIRE_DEVICE_AND (device, count && (entries || !*count));
  unsigned room = *count;
  *count = processes_of (device, list);
  return *count <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define NO_INSTANCE 0xffffffffu

nvmlReturn_t
nvmlDeviceGetComputeRunningProcesses_v3 (nvmlDevice_t device, unsigned int *count,
                                         nvmlProcessInfo_t *infos)
{
  struct process list[SOFTGPU_MAX_SLOTS];
  REQUIRE_SUCCESS (softgpu_list_processes (device, count, infos, list));
  for (unsigned i = 0; i < *count; i++)
    infos[i] = (nvmlProcessInfo_t){ .pid = list[i].pid,
                                    .usedGpuMemory = list[i].held_bytes,
                                    .gpuInstanceId = NO_INSTANCE,
                                    .computeInstanceId = NO_INSTANCE };
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlDeviceGetComputeRunningProcesses_v2 (nvmlDevice_t device, unsigned int *count,
                                         nvmlProcessInfo_v2_t *infos)
{
  _Static_assert (sizeof (nvmlProcessInfo_v2_t) == sizeof (nvmlProcessInfo_t), "same layout");
  return nvmlDeviceGetComputeRunningProcesses_v3 (device, count, (nvmlProcessInfo_t *) infos);
}

nvmlReturn_t
nvmlDeviceGetComputeRunningProcesses (nvmlDevice_t device, unsigned int *count,
                                      nvmlProcessInfo_v1_t *infos)
{
  struct process list[SOFTGPU_MAX_SLOTS];
  REQUIRE_SUCCESS (softgpu_list_processes (device, count, infos, list));
  for (unsigned i = 0; i < *count; i++)
    infos[i] = (nvmlProcessInfo_v1_t){ .pid = list[i].pid, .usedGpuMemory = list[i].held_bytes };
  return NVML_SUCCESS;
}

#define NO_PROCESSES(function, type)                                                               \
  nvmlReturn_t nvmlDeviceGet##function (nvmlDevice_t device, unsigned int *count, type *infos)     \
  {                                                                                                \
    REQUIRE_DEVICE (device);                                                                       \
    (void) infos;                                                                                  \
    REQUIRE (count, NVML_ERROR_INVALID_ARGUMENT);                                                  \
    *count = 0;                                                                                    \
    return NVML_SUCCESS;                                                                           \
  }

NO_PROCESSES (GraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES (GraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES (GraphicsRunningProcesses_v3, nvmlProcessInfo_t)
NO_PROCESSES (MPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES (MPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES (MPSComputeRunningProcesses_v3, nvmlProcessInfo_t)

nvmlReturn_t
nvmlDeviceGetProcessUtilization (nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                 unsigned int *count, unsigned long long last_seen_us)
{
  REQUIRE_DEVICE_AND (device, count);
  REQUIRE (!softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  struct process list[SOFTGPU_MAX_SLOTS];
  struct timeval now;
  unsigned room = samples ? *count : 0;
  unsigned found = processes_of (device, list);
  gettimeofday (&now, NULL);
  unsigned long long stamp = (unsigned long long) now.tv_sec * 1000000 + (unsigned) now.tv_usec;
  uint64_t total = gpu_of (device)->memory_bytes;
  *count = found;
  REQUIRE (found && stamp > last_seen_us, NVML_ERROR_NOT_FOUND);
  REQUIRE (found <= room, NVML_ERROR_INSUFFICIENT_SIZE);
  for (unsigned i = 0; i < found; i++)
    samples[i] = (nvmlProcessUtilizationSample_t){
      .pid = list[i].pid,
      .timeStamp = stamp,
      .smUtil = list[i].percent,
      .memUtil = (unsigned) (list[i].held_bytes * 100 / total),
    };
  return NVML_SUCCESS;
}
