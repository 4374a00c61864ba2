/* NVML: starting, ending, ordered failures, versions, error texts.  */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nvml/monitor.h"

struct monitor monitor = { .tie = { .fd = -1 } };

static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

static void
in_child (void)
{
  monitor.users = 0;
  softgpu_forget (&monitor.tie);
}

static nvmlReturn_t
start (void)
{
  static bool watching_forks;
  static const nvmlReturn_t answers[] = {
    [ATTACHED] = NVML_SUCCESS,
    [ATTACH_FULL] = NVML_ERROR_INSUFFICIENT_RESOURCES,
    [ATTACH_NO_PERMISSION] = NVML_ERROR_NO_PERMISSION,
    [ATTACH_NO_DRIVER] = NVML_ERROR_DRIVER_NOT_LOADED,
  };
  REQUIRE (softgpu_find (&monitor.paths), NVML_ERROR_DRIVER_NOT_LOADED);
  REQUIRE_SUCCESS (answers[softgpu_attach_at (&monitor.tie, &monitor.paths, SOFTGPU_NVML)]);
  if (!watching_forks)
    pthread_atfork (NULL, NULL, in_child);
  watching_forks = true;
  const unsigned gpus = monitor.tie.gpu_count, first = monitor.tie.state->gpu_count;
  monitor.parts = monitor.tie.state->entries - first;
  for (unsigned i = 0; i < gpus + monitor.parts; i++)
    monitor.device[i]
        = (struct nvmlDevice_st){ .gpu = i < gpus ? monitor.tie.gpu[i] : first + i - gpus,
                                  .index = i };
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlInitWithFlags (unsigned int flags)
{
  pthread_mutex_lock (&starting);
  nvmlReturn_t rc = monitor.users ? NVML_SUCCESS : start ();
  if (rc == NVML_SUCCESS && !monitor.tie.gpu_count && !(flags & NVML_INIT_FLAG_NO_GPUS))
    {
      softgpu_detach (&monitor.tie);
      rc = NVML_ERROR_DRIVER_NOT_LOADED;
    }
  if (rc == NVML_SUCCESS)
    monitor.users++;
  pthread_mutex_unlock (&starting);
  return rc;
}

nvmlReturn_t
nvmlInit_v2 (void)
{
  return nvmlInitWithFlags (0);
}

ALSO_NAMED (nvmlInit, nvmlInit_v2);

nvmlReturn_t
nvmlShutdown (void)
{
  pthread_mutex_lock (&starting);
  nvmlReturn_t rc = monitor.users ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
  if (rc == NVML_SUCCESS && --monitor.users == 0)
    softgpu_detach (&monitor.tie);
  pthread_mutex_unlock (&starting);
  return rc;
}

/* The error that was ordered for a call of NAME; 0: none. FIRST: its first argument, whatever it
   is.  */
int softgpu_gate (const char *name, nvmlDevice_t first);

int
softgpu_gate (const char *name, nvmlDevice_t first)
{
  if (!monitor.users)
    return 0;
  return softgpu_ordered_error (monitor.tie.state, name,
                                softgpu_valid (first) ? first->gpu + 1 : 0);
}

nvmlReturn_t
softgpu_put_text (char *out, unsigned length, const char *text)
{
  REQUIRE (out, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE (strlen (text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
  strcpy (out, text);
  return NVML_SUCCESS;
}

nvmlReturn_t
nvmlSystemGetDriverVersion (char *version, unsigned int length)
{
  REQUIRE_MONITOR ();
  return softgpu_put_text (version, length, monitor.tie.state->driver_version);
}

nvmlReturn_t
nvmlSystemGetNVMLVersion (char *version, unsigned int length)
{
  REQUIRE_MONITOR ();
  char text[48];
  snprintf (text, sizeof text, "%d.%s", NVML_API_VERSION, monitor.tie.state->driver_version);
  return softgpu_put_text (version, length, text);
}

nvmlReturn_t
nvmlSystemGetCudaDriverVersion_v2 (int *version)
{
  REQUIRE_ARGUMENTS (version);
  *version = monitor.tie.state->cuda_version;
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2);

nvmlReturn_t
nvmlSystemGetProcessName (unsigned int pid, char *name, unsigned int length)
{
  REQUIRE_ARGUMENTS (name && length);
  char path[64], text[1024] = "";
  snprintf (path, sizeof path, "/proc/%u/cmdline", pid);
  FILE *file = fopen (path, "re");
  REQUIRE (file, NVML_ERROR_NOT_FOUND);
  size_t got = fread (text, 1, sizeof text - 1, file);
  fclose (file);
  REQUIRE (got, NVML_ERROR_NOT_FOUND);
  snprintf (name, length, "%s", text);
  return NVML_SUCCESS;
}

const char *
nvmlErrorString (nvmlReturn_t result)
{
  static const char *const texts[] = {
    [NVML_SUCCESS] = "Success",
    [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
    [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
    [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
    [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
    [NVML_ERROR_NOT_FOUND] = "Not Found",
    [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
    [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
    [NVML_ERROR_TIMEOUT] = "Timeout",
    [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
    [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
    [NVML_ERROR_OPERATING_SYSTEM] = "Operating system call failed",
    [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
    [NVML_ERROR_MEMORY] = "Insufficient Memory",
    [NVML_ERROR_IN_USE] = "In use by another client",
    [NVML_ERROR_NO_DATA] = "No data",
    [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
    [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
    [NVML_ERROR_GPU_NOT_FOUND] = "No GPUs were found",
  };
  const char *text = (unsigned) result < sizeof texts / sizeof *texts ? texts[result] : NULL;
  return text ? text : "Unknown Error";
}
