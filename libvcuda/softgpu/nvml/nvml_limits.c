/* NVML: the driver's own limit of what a cgroup holds of a device, as drivers have from 615 on.
   Where the kernel has dmem the limits are in its files too; else the driver alone keeps the
   accounts.

   Source: nvml.h, nvmlSetMemoryLimits_v1_t; NVIDIA's "MPS v3 Memory Partitioning".  */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/account.h"
#include "nvml/dmem.h"

enum
{
  FIRST_DRIVER = 615,
};

/* The pid namespace of the first process in the cgroup of the folder PATH.  */
static nvmlReturn_t
cgroup_of (nvmlDevice_t device, const char *path, uint64_t *namespace)
{
  char procs[4096], pid[32];
  REQUIRE_DEVICE (device);
  REQUIRE (path && *path == '/', NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (!softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (atoi (monitor.tie.state->driver_version) >= FIRST_DRIVER, NVML_ERROR_NOT_SUPPORTED);
  int length = snprintf (procs, sizeof procs, "%s/cgroup.procs", path);
  REQUIRE (length > 0 && (size_t) length < sizeof procs, NVML_ERROR_INVALID_ARGUMENT);
  FILE *file = fopen (procs, "re");
  REQUIRE (file, NVML_ERROR_OPERATING_SYSTEM);
  unsigned first = fgets (pid, sizeof pid, file) ? (unsigned) strtoul (pid, NULL, 10) : 0;
  fclose (file);
  snprintf (pid, sizeof pid, "%u", first);
  *namespace = softgpu_pid_namespace (pid);
  REQUIRE (*namespace, NVML_ERROR_OPERATING_SYSTEM);
  return NVML_SUCCESS;
}

static bool
lives (uint64_t namespace)
{
  DIR *proc = opendir ("/proc");
  bool found = !proc;
  for (struct dirent *entry; proc && !found && (entry = readdir (proc));)
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
      found = softgpu_pid_namespace (entry->d_name) == namespace;
  if (proc)
    closedir (proc);
  return found;
}

/* Removes the limits of ended namespaces: inode numbers are reused.  */
static void
forget_the_dead (struct attachment *tie)
{
  for (unsigned i = 0; i < SOFTGPU_LIMITS; i++)
    {
      struct softgpu_limit *limit = &tie->state->limit[i];
      uint64_t namespace = limit->pid_namespace;
      if (!namespace || lives (namespace))
        continue;
      softgpu_lock (tie);
      if (limit->pid_namespace == namespace)
        limit->pid_namespace = 0;
      softgpu_unlock (tie);
    }
}

nvmlReturn_t
nvmlDeviceSetMemoryLimits_v1 (nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
  REQUIRE (limits, NVML_ERROR_INVALID_ARGUMENT);
  const uint64_t soft = limits->softLimit, hard = limits->hardLimit;
  uint64_t namespace;
  REQUIRE_SUCCESS (cgroup_of (device, limits->nameSpace, &namespace));
  /* No process sets its own container's limit from inside.  */
  REQUIRE (namespace != softgpu_pid_namespace ("self"), NVML_ERROR_NO_PERMISSION);
  REQUIRE (soft <= hard
               && (hard == NVML_DEVICE_MEMORY_LIMIT_MAX || hard <= gpu_of (device)->memory_bytes),
           NVML_ERROR_INVALID_ARGUMENT);
  if (softgpu_dmem_accounts (limits->nameSpace))
    REQUIRE_SUCCESS (softgpu_dmem_set (limits->nameSpace, gpu_of (device)->pci_bus, soft, hard));
  struct attachment *tie = &monitor.tie;
  forget_the_dead (tie);
  softgpu_lock (tie);
  struct softgpu_limit *limit = softgpu_limit_of (tie->state, device->gpu, namespace);
  for (unsigned i = 0; !limit && i < SOFTGPU_LIMITS; i++)
    if (!tie->state->limit[i].pid_namespace)
      limit = &tie->state->limit[i];
  if (limit)
    *limit = (struct softgpu_limit){
      .pid_namespace = hard == NVML_DEVICE_MEMORY_LIMIT_MAX ? 0 : namespace,
      .soft_bytes = soft,
      .hard_bytes = hard,
      .gpu = device->gpu,
    };
  softgpu_unlock (tie);
  return limit ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

nvmlReturn_t
nvmlDeviceGetMemoryLimits_v1 (nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
  REQUIRE (limits, NVML_ERROR_INVALID_ARGUMENT);
  uint64_t namespace;
  REQUIRE_SUCCESS (cgroup_of (device, limits->nameSpace, &namespace));
  struct attachment *tie = &monitor.tie;
  softgpu_lock (tie);
  softgpu_reap (tie);
  const struct softgpu_limit *limit = softgpu_limit_of (tie->state, device->gpu, namespace);
  if (limit)
    {
      limits->softLimit = limit->soft_bytes;
      limits->hardLimit = limit->hard_bytes;
      limits->currentUsed = softgpu_held_by (tie->state, device->gpu, namespace);
    }
  softgpu_unlock (tie);
  return limit ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
