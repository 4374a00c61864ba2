/* nvidia-smi's view of NVML.  */

#pragma once

#include <stdbool.h>

#include <nvml.h>

/* The functions of libnvidia-ml.so.1 that nvidia-smi calls, loaded at run time so that it starts,
   and can say what is wrong, where there is no driver.  */
#define NVML_FUNCTIONS(F)                                                                          \
  F (init, "nvmlInit_v2", (void) )                                                                 \
  F (shutdown, "nvmlShutdown", (void) )                                                            \
  F (driverVersion, "nvmlSystemGetDriverVersion", (char *, unsigned) )                             \
  F (cudaVersion, "nvmlSystemGetCudaDriverVersion_v2", (int *) )                                   \
  F (processName, "nvmlSystemGetProcessName", (unsigned, char *, unsigned) )                       \
  F (count, "nvmlDeviceGetCount_v2", (unsigned *) )                                                \
  F (handle, "nvmlDeviceGetHandleByIndex_v2", (unsigned, nvmlDevice_t *) )                         \
  F (name, "nvmlDeviceGetName", (nvmlDevice_t, char *, unsigned) )                                 \
  F (uuid, "nvmlDeviceGetUUID", (nvmlDevice_t, char *, unsigned) )                                 \
  F (pci, "nvmlDeviceGetPciInfo_v3", (nvmlDevice_t, nvmlPciInfo_t *) )                             \
  F (memory, "nvmlDeviceGetMemoryInfo", (nvmlDevice_t, nvmlMemory_t *) )                           \
  F (utilisation, "nvmlDeviceGetUtilizationRates", (nvmlDevice_t, nvmlUtilization_t *) )           \
  F (temperature, "nvmlDeviceGetTemperature",                                                      \
     (nvmlDevice_t, nvmlTemperatureSensors_t, unsigned *) )                                        \
  F (power, "nvmlDeviceGetPowerUsage", (nvmlDevice_t, unsigned *) )                                \
  F (powerLimit, "nvmlDeviceGetEnforcedPowerLimit", (nvmlDevice_t, unsigned *) )                   \
  F (processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                         \
     (nvmlDevice_t, unsigned *, nvmlProcessInfo_t *) )

struct nvml
{
#define MEMBER(name, symbol, parameters) nvmlReturn_t (*name) parameters;
  NVML_FUNCTIONS (MEMBER)
#undef MEMBER
  const char *(*errorString) (nvmlReturn_t);
};

extern struct nvml nvml;

/* Prints the FIELDS (a comma-separated list) of every GPU, or of the one that ONLY names. FORMATS:
   the value of --format.  */
int query (const char *fields, const char *formats, const char *only);

/* The first GPU from *INDEX on that ONLY (an index or a UUID; NULL: any) names; false: none.  */
bool find_device (unsigned *index, const char *only, nvmlDevice_t *device);
