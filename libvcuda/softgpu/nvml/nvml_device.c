/* NVML: the devices and their properties.  */

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml/monitor.h"

nvmlReturn_t
nvmlDeviceGetCount_v2 (unsigned int *count)
{
  REQUIRE_ARGUMENTS (count);
  *count = monitor.tie.gpu_count;
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlDeviceGetCount, nvmlDeviceGetCount_v2);

nvmlReturn_t
nvmlDeviceGetHandleByIndex_v2 (unsigned int index, nvmlDevice_t *device)
{
  REQUIRE_ARGUMENTS (device && index < monitor.tie.gpu_count);
  REQUIRE (!gpu_of (&monitor.device[index])->lost, NVML_ERROR_GPU_IS_LOST);
  *device = &monitor.device[index];
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2);

nvmlReturn_t
nvmlDeviceGetHandleByUUID (const char *uuid, nvmlDevice_t *device)
{
  REQUIRE_ARGUMENTS (uuid && device);
  for (unsigned i = 0; i < monitor.tie.gpu_count + monitor.parts; i++)
    if (softgpu_valid (&monitor.device[i])
        && strcasecmp (gpu_of (&monitor.device[i])->uuid, uuid) == 0)
      {
        REQUIRE (!gpu_of (&monitor.device[i])->lost, NVML_ERROR_GPU_IS_LOST);
        *device = &monitor.device[i];
        return NVML_SUCCESS;
      }
  return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t
nvmlDeviceGetHandleByPciBusId_v2 (const char *id, nvmlDevice_t *device)
{
  REQUIRE_MONITOR ();
  unsigned domain, bus;
  REQUIRE (id && device && sscanf (id, "%x:%x", &domain, &bus) == 2, NVML_ERROR_INVALID_ARGUMENT);
  for (unsigned i = 0; i < monitor.tie.gpu_count; i++)
    if (domain == 0 && gpu_of (&monitor.device[i])->pci_bus == bus)
      return nvmlDeviceGetHandleByIndex_v2 (i, device);
  return NVML_ERROR_NOT_FOUND;
}

ALSO_NAMED (nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2);

#define TEXT(function, value)                                                                      \
  nvmlReturn_t nvmlDevice##function (nvmlDevice_t device, char *text, unsigned int length)         \
  {                                                                                                \
    REQUIRE_DEVICE (device);                                                                       \
    return softgpu_put_text (text, length, value);                                                 \
  }

TEXT (GetUUID, gpu_of (device)->uuid)
TEXT (GetName, gpu_of (device)->name)
TEXT (GetVbiosVersion, "00.00.00.00.00")

nvmlPciInfo_t
softgpu_pci_at (unsigned bus)
{
  nvmlPciInfo_t pci = { .bus = bus & 0xff };
  snprintf (pci.busId, sizeof pci.busId, "00000000:%02X:00.0", pci.bus & 0xff);
  snprintf (pci.busIdLegacy, sizeof pci.busIdLegacy, "0000:%02X:00.0", pci.bus & 0xff);
  return pci;
}

nvmlReturn_t
nvmlDeviceGetPciInfo_v3 (nvmlDevice_t device, nvmlPciInfo_t *pci)
{
  REQUIRE_DEVICE_AND (device, pci);
  *pci = softgpu_pci_at (gpu_of (device)->pci_bus);
  pci->pciDeviceId = 0x10de;
  return NVML_SUCCESS;
}

ALSO_NAMED (nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo_v3);
ALSO_NAMED (nvmlDeviceGetPciInfo, nvmlDeviceGetPciInfo_v3);

nvmlReturn_t
nvmlDeviceGetCudaComputeCapability (nvmlDevice_t device, int *major, int *minor)
{
  REQUIRE_DEVICE_AND (device, major && minor);
  *major = 9;
  *minor = 0;
  return NVML_SUCCESS;
}

ANSWER (GetIndex, unsigned, device->index)
ANSWER (GetMinorNumber, unsigned, gpu_of (device)->minor)
ANSWER (GetBoardId, unsigned, gpu_of (device)->pci_bus << 8)
ANSWER (GetSupportedEventTypes, unsigned long long,
        nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError)
ANSWER (GetBrand, nvmlBrandType_t, NVML_BRAND_UNKNOWN)
ANSWER (GetArchitecture, nvmlDeviceArchitecture_t, NVML_DEVICE_ARCH_HOPPER)
ANSWER (GetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
ANSWER (GetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ANSWER (GetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ANSWER (GetComputeMode, nvmlComputeMode_t,
        gpu_of (device)->exclusive ? NVML_COMPUTEMODE_EXCLUSIVE_PROCESS : NVML_COMPUTEMODE_DEFAULT)
ANSWER (GetAccountingMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
ANSWER (GetNumGpuCores, unsigned, 132 * 128)
ANSWER (GetMemoryBusWidth, unsigned, 5120)
ANSWER (GetMaxPcieLinkGeneration, unsigned, 5)
ANSWER (GetCurrPcieLinkGeneration, unsigned, 5)
ANSWER (GetMaxPcieLinkWidth, unsigned, 16)
ANSWER (GetCurrPcieLinkWidth, unsigned, 16)
