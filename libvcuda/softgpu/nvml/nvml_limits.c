/* NVML: the driver's own limit of what a cgroup holds of a device, as drivers have from 615 on.
   Where the kernel has the dmem controller, from Linux 6.14 on, the limits are in its files too: a
   cgroup's folder has `dmem.max` and `dmem.min` if its parent enables dmem. Else the driver alone
   keeps the accounts.

   Source: nvml.h, nvmlSetMemoryLimits_v1_t; the kernel's cgroup-v2.rst, "DMEM"; NVIDIA's "MPS v3
   Memory Partitioning", also "Ancestor reservation propagation".  */

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/account.h"
#include "nvml/monitor.h"

enum
{
  FIRST_DRIVER = 615,
  FOLDER = 4096, /* as long as cgroup_of lets it be */
  PATH = FOLDER + 32,
  MOST = 8192,
};

/* Puts the path of FOLDER's file NAME into PATH and returns it.  */
static const char *
file_of (char *path, const char *folder, const char *name)
{
  snprintf (path, PATH, "%.*s/%s", FOLDER - 1, folder, name);
  return path;
}

/* Cuts the last part off FOLDER; false: none is left.  */
static bool
go_up (char *folder)
{
  char *slash = strrchr (folder, '/');
  if (!slash || slash == folder)
    return false;
  *slash = 0;
  return true;
}

/* Reads the file at PATH; "" if there is none.  */
static void
read_text (const char *path, char *text)
{
  FILE *file = fopen (path, "re");
  size_t length = file ? fread (text, 1, MOST - 1, file) : 0;
  text[length] = 0;
  if (file)
    fclose (file);
}

/* Whether dmem accounts for the cgroup of FOLDER: the hierarchy lists it in `cgroup.controllers`.
 */
static bool
dmem_accounts (const char *folder)
{
  char at[FOLDER], path[PATH], text[MOST];
  snprintf (at, sizeof at, "%s", folder);
  do
    {
      read_text (file_of (path, at, "cgroup.controllers"), text);
      if (strstr (text, "dmem"))
        return true;
    }
  while (go_up (at));
  return false;
}

/* The bytes of region KEY in TEXT; 0: it has none.  */
static uint64_t
bytes_of (const char *text, const char *key)
{
  const char *line = strstr (text, key);
  return line ? strtoull (line + strlen (key), NULL, 10) : 0;
}

/* Replaces the line of KEY in the file at PATH; false: it cannot be written.  */
static bool
write_bytes (const char *path, const char *key, uint64_t bytes)
{
  char text[MOST];
  read_text (path, text);
  FILE *file = fopen (path, "we");
  if (!file)
    return false;
  for (char *line = strtok (text, "\n"); line; line = strtok (NULL, "\n"))
    if (strncmp (line, key, strlen (key)) != 0)
      fprintf (file, "%s\n", line);
  if (bytes == NVML_DEVICE_MEMORY_LIMIT_MAX)
    fprintf (file, "%smax\n", key);
  else
    fprintf (file, "%s%" PRIu64 "\n", key, bytes);
  return fclose (file) == 0;
}

/* Writes the limits in bytes into the files of FOLDER, and adds the change of SOFT to each cgroup
   above it that has the files: the kernel protects memory only if all above reserve it too.
   NVML_ERROR_NOT_FOUND: its parent does not enable dmem.  */
static nvmlReturn_t
dmem_set (const char *folder, unsigned pci_bus, uint64_t soft, uint64_t hard)
{
  char at[FOLDER], path[PATH], text[MOST], key[64];
  snprintf (key, sizeof key, "nvidia/00000000:%02x:00.0/vidmem ", pci_bus);
  snprintf (at, sizeof at, "%s", folder);
  REQUIRE (access (file_of (path, at, "dmem.max"), F_OK) == 0, NVML_ERROR_NOT_FOUND);
  REQUIRE (write_bytes (path, key, hard), NVML_ERROR_OPERATING_SYSTEM);
  read_text (file_of (path, at, "dmem.min"), text);
  const uint64_t before = bytes_of (text, key);
  do
    {
      read_text (path, text);
      REQUIRE (write_bytes (path, key, bytes_of (text, key) - before + soft),
               NVML_ERROR_OPERATING_SYSTEM);
    }
  while (go_up (at) && access (file_of (path, at, "dmem.min"), F_OK) == 0);
  return NVML_SUCCESS;
}

/* The pid namespace of the first process in the cgroup of the folder PATH.  */
static nvmlReturn_t
cgroup_of (nvmlDevice_t device, const char *path, uint64_t *namespace)
{
  char procs[4096], pid[32];
  REQUIRE_DEVICE_AND (device, path && *path == '/');
  REQUIRE (!softgpu_is_mig (device), NVML_ERROR_NOT_SUPPORTED);
  REQUIRE (atoi (monitor.tie.state->driver_version) >= FIRST_DRIVER, NVML_ERROR_NOT_SUPPORTED);
  int length = snprintf (procs, sizeof procs, "%s/cgroup.procs", path);
  REQUIRE (length > 0 && (size_t) length < sizeof procs, NVML_ERROR_INVALID_ARGUMENT);
  FILE *file = fopen (procs, "re");
  REQUIRE (file, NVML_ERROR_OPERATING_SYSTEM);
  bool any = fscanf (file, "%31[0-9]", pid) == 1;
  fclose (file);
  *namespace = any ? softgpu_pid_namespace (pid) : 0;
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
  if (dmem_accounts (limits->nameSpace))
    REQUIRE_SUCCESS (dmem_set (limits->nameSpace, gpu_of (device)->pci_bus, soft, hard));
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
