"""Names of the DRA driver in objects of the API: driver, classes, capacities, a claim's parameters.

Agent and claim templates use the same. Source: docs/share-config.schema.json.
"""

from __future__ import annotations

from vcuda_oci.model import policies

DRIVER = "gpu.vcuda.io"
# DeviceClasses of the chart: all devices, and those that are no MIG devices.
SHARES, WHOLE = DRIVER, f"whole.{DRIVER}"
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
}
CONFIG_TEXTS = ("policy", "latency", "idleSuspend")
