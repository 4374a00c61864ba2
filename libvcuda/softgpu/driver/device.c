/* Devices: count, names, sizes, and where they sit on the bus.  */

#include <stdio.h>

#include "driver/device.h"

/* Returns from the calling function unless DEV is a device, and ANSWERABLE.  */
#define REQUIRE_ANSWER(answerable, dev)                                                            \
  REQUIRE_ARGUMENTS (answerable);                                                                  \
  REQUIRE (valid_device (dev), CUDA_ERROR_INVALID_DEVICE)

CUresult
cuDeviceGetCount (int *count)
{
  REQUIRE_ARGUMENTS (count);
  *count = driver.device_count;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGet (CUdevice *device, int ordinal)
{
  REQUIRE_ANSWER (device, ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetName (char *name, int len, CUdevice dev)
{
  REQUIRE_ANSWER (name && len > 0, dev);
  snprintf (name, (size_t) len, "%s", gpu_of (dev)->name);
  return CUDA_SUCCESS;
}

CUresult
softgpu_read_uuid (CUuuid *uuid, const char *text)
{
  const char *at = text + 4;
  for (unsigned byte = 0; byte < sizeof uuid->bytes; byte++, at += 2)
    {
      unsigned value;
      at += *at == '-';
      REQUIRE (at[0] && at[1] && sscanf (at, "%2x", &value) == 1, CUDA_ERROR_UNKNOWN);
      uuid->bytes[byte] = (char) value;
    }
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetUuid_v2 (CUuuid *uuid, CUdevice dev)
{
  REQUIRE_ANSWER (uuid, dev);
  return softgpu_read_uuid (uuid, gpu_of (dev)->uuid);
}

/* Of a MIG device its GPU's.  */
CUresult
cuDeviceGetUuid (CUuuid *uuid, CUdevice dev)
{
  REQUIRE_ANSWER (uuid, dev);
  const struct softgpu_gpu *gpu = gpu_of (dev);
  return softgpu_read_uuid (uuid,
                            gpu->parent ? driver.tie.state->gpu[gpu->parent - 1].uuid : gpu->uuid);
}

CUresult
cuDeviceTotalMem_v2 (size_t *bytes, CUdevice dev)
{
  REQUIRE_ANSWER (bytes, dev);
  *bytes = gpu_of (dev)->memory_bytes;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceComputeCapability (int *major, int *minor, CUdevice dev)
{
  REQUIRE_ANSWER (major && minor, dev);
  *major = 9;
  *minor = 0;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetPCIBusId (char *id, int len, CUdevice dev)
{
  REQUIRE_ANSWER (id && len > 0, dev);
  snprintf (id, (size_t) len, "0000:%02X:00.0", gpu_of (dev)->pci_bus);
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetByPCIBusId (CUdevice *dev, const char *id)
{
  REQUIRE_ARGUMENTS (dev && id);
  unsigned domain, bus;
  REQUIRE (sscanf (id, "%x:%x", &domain, &bus) == 2, CUDA_ERROR_INVALID_VALUE);
  for (int i = 0; i < driver.device_count; i++)
    if (domain == 0 && gpu_of (i)->pci_bus == bus)
      {
        *dev = i;
        return CUDA_SUCCESS;
      }
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult
cuDeviceCanAccessPeer (int *can, CUdevice dev, CUdevice peer)
{
  REQUIRE_ARGUMENTS (can);
  REQUIRE (valid_device (dev) && valid_device (peer), CUDA_ERROR_INVALID_DEVICE);
  *can = 0;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetP2PAttribute (int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to)
{
  REQUIRE_ARGUMENTS (value && attribute >= CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
                     && attribute <= CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED);
  REQUIRE (valid_device (from) && valid_device (to), CUDA_ERROR_INVALID_DEVICE);
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult
cuDeviceGetExecAffinitySupport (int *support, CUexecAffinityType type, CUdevice dev)
{
  REQUIRE_ANSWER (support && type == CU_EXEC_AFFINITY_TYPE_SM_COUNT, dev);
  *support = 0;
  return CUDA_SUCCESS;
}
