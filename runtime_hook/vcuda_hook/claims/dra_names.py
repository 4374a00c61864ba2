"""Names of the DRA driver in objects of the API: driver, classes, capacities, a claim's parameters.

The agent, claim templates, the cluster page and `vcuda why` use the same. Source:
docs/share-config.schema.json.
"""

from __future__ import annotations

from vcuda_oci.model import policies

DRIVER = "gpu.vcuda.io"
# DeviceClasses of the chart: GPUs in turns and MIG devices, GPUs alone; by isolation, GPUs under
# MPS and places of GPU instances.
SHARES, WHOLE = DRIVER, f"whole.{DRIVER}"
FENCED = {policies.MPS: f"mps.{DRIVER}", policies.MIG: f"mig.{DRIVER}"}
# The attribute "type" of a device.
TYPE_GPU, TYPE_MIG, TYPE_MPS, TYPE_PLACE = "gpu", "mig", "mps", "mig-place"
CORES, MEMORY = "cores", "memory"
UUID = "uuid"
MEMORY_STEP_BYTES = 1 << 20
CONFIG_VERSION, CONFIG_KIND = "vcuda.io/v1alpha1", "ShareConfig"
# The policies' words, by the field of the parameters.
CONFIG_FIELDS = {
    "policy": "policy",
    "coreLimit": policies.CORE_LIMIT,
    "weight": policies.WEIGHT,
    "priority": policies.PRIORITY,
    "latency": policies.LATENCY,
    "idleSuspend": policies.IDLE_SUSPEND,
    "isolation": policies.ISOLATION,
}
CONFIG_TEXTS = ("policy", "latency", "idleSuspend", "isolation")
