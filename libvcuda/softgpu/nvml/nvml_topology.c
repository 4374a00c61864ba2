/* NVML: how the GPUs are joined, as softgpu create --topology said; not supported without it.  */

#include "nvml/monitor.h"

enum
{
  SWITCH_BUS = 0xf0, /* of the NVSwitch that all links of its kind lead to */
};

/* Whether two GPUs are in one group, where groups have SIZE GPUs each.  */
static bool
together (unsigned a, unsigned b, unsigned size)
{
  return size && a / size == b / size;
}

nvmlReturn_t
nvmlDeviceGetTopologyCommonAncestor (nvmlDevice_t one, nvmlDevice_t other,
                                     nvmlGpuTopologyLevel_t *level)
{
  REQUIRE_DEVICE (one);
  REQUIRE_DEVICE_AND (other, level);
  const struct softgpu_topology *topology = &monitor.tie.state->topology;
  REQUIRE (topology->reported, NVML_ERROR_NOT_SUPPORTED);
  if (one == other)
    *level = NVML_TOPOLOGY_INTERNAL;
  else if (together (one->gpu, other->gpu, topology->pcie))
    *level = NVML_TOPOLOGY_SINGLE;
  else if (together (one->gpu, other->gpu, topology->numa))
    *level = NVML_TOPOLOGY_NODE;
  else
    *level = NVML_TOPOLOGY_SYSTEM;
  return NVML_SUCCESS;
}

/* Where LINK of a GPU ends: a GPU, SOFTGPU_MAX_GPUS for the switch, -1 where there is no such link.
   In an island two links join the GPUs of one PCIe switch, and one any others.  */
static int
link_end (unsigned gpu, unsigned link)
{
  const struct softgpu_state *state = monitor.tie.state;
  const struct softgpu_topology *topology = &state->topology;
  for (unsigned peer = 0; peer < state->gpu_count; peer++)
    {
      if (peer == gpu || !together (gpu, peer, topology->nvlink))
        continue;
      unsigned links = together (gpu, peer, topology->pcie) ? 2 : 1;
      if (link < links)
        return (int) peer;
      link -= links;
    }
  return link < topology->nvswitch ? SOFTGPU_MAX_GPUS : -1;
}

static nvmlReturn_t
find_end (nvmlDevice_t device, unsigned link, const void *answer, int *end)
{
  REQUIRE_DEVICE_AND (device, answer);
  const struct softgpu_topology *topology = &monitor.tie.state->topology;
  REQUIRE (topology->nvlink || topology->nvswitch, NVML_ERROR_NOT_SUPPORTED);
  *end = link_end (device->gpu, link);
  REQUIRE (*end >= 0, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

/* A function that answers with VALUE, where END is the link's end.  */
#define LINK_ANSWER(function, type, value)                                                         \
  nvmlReturn_t nvmlDeviceGetNvLink##function (nvmlDevice_t device, unsigned link, type *answer)    \
  {                                                                                                \
    int end;                                                                                       \
    REQUIRE_SUCCESS (find_end (device, link, answer, &end));                                       \
    *answer = (value);                                                                             \
    return NVML_SUCCESS;                                                                           \
  }

LINK_ANSWER (State, nvmlEnableState_t, NVML_FEATURE_ENABLED)
LINK_ANSWER (RemoteDeviceType, nvmlIntNvLinkDeviceType_t,
             end == SOFTGPU_MAX_GPUS ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU)
LINK_ANSWER (RemotePciInfo_v2, nvmlPciInfo_t,
             softgpu_pci_at (end == SOFTGPU_MAX_GPUS ? SWITCH_BUS
                                                     : monitor.tie.state->gpu[end].pci_bus))

ALSO_NAMED (nvmlDeviceGetNvLinkRemotePciInfo, nvmlDeviceGetNvLinkRemotePciInfo_v2);
