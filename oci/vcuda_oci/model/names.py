"""All names that users and other systems see."""

from __future__ import annotations

VERSION = "0.1.0"
PROGRAM = "vcuda-container-runtime"
HOOK_PROGRAM = "vcuda-container-hook"
AGENT_PROGRAM = "vcuda-node-agent"
EXTENDER_PROGRAM = "vcuda-scheduler-extender"
COMMAND = "vcuda"
DEFAULT_CONFIG = "/etc/vcuda/config.toml"

# A container's request: annotations, and environment variables with the same keys.
ANNOTATION_PREFIX = "vcuda.io/"
ENV_PREFIX = "VCUDA_"
REQUEST_KEYS = (
    "core", "memory", "gpu", "placement",
    "policy", "core-limit", "weight", "priority", "latency", "idle-suspend", "isolation",
)  # fmt: skip

# Other keys with this prefix, on pods, nodes and engines.
OTHER_KEYS = (
    "placement-decision", "node-gpus", "cordoned-gpus",
    "use-gpu-uuid", "use-gpu-model", "moved",
)  # fmt: skip

# Annotations in the device plugin's answer to Allocate: amounts in the resource's own unit.
ANNOTATION_CORE_UNITS = "vcuda.io/request.vcuda-core"
ANNOTATION_MEMORY_UNITS = "vcuda.io/request.vcuda-memory"
ANNOTATION_GPU_UNITS = "vcuda.io/request.gpu"
# HAMi's resources: a number of GPUs; the pod's object has the amounts.
ANNOTATION_VIRTUAL_UNITS = "vcuda.io/request.vgpu"
ANNOTATIONS_OF_UNITS = (
    ANNOTATION_CORE_UNITS, ANNOTATION_MEMORY_UNITS,
    ANNOTATION_GPU_UNITS, ANNOTATION_VIRTUAL_UNITS,
)  # fmt: skip
MEMORY_UNIT_BYTES = 256 * 1024 * 1024
# The same amounts under GPUManager's names, for programs that read those.
GPUMANAGER_CORE, GPUMANAGER_MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"

# The scheduler extender's decision, on the pod; the agent's list of GPUs, on the node.
ANNOTATION_DECISION = "vcuda.io/placement-decision"
ANNOTATION_NODE_GPUS = "vcuda.io/node-gpus"
# The folder of decision files: <state-dir>/decisions/<pod uid>.json.
DECISIONS = "decisions"
# The folder of records of GPU instances: <state-dir>/instances/<id>.json.
INSTANCES = "instances"
STATIC = "static"  # in INSTANCES: those of static layouts
# The folder of MPS daemons: <state-dir>/mps/<GPU>.
MPS_FOLDER = "mps"
# <state-dir>/door.sock
CLAIM_SOCKET = "door.sock"
# The agent's socket for looking up one pod: <state-dir>/pods.sock.
POD_LOOKUP = "pods.sock"

# CDI devices, as in `--device vcuda.io/gpu=0`, and their spec.
CDI_KIND = "vcuda.io/gpu"
CDI_SPEC = "/var/run/cdi/vcuda.json"
# Ids of named slices begin with this. No container's id has an @.
SLICE_PREFIX = "cdi@"
# Prepared claims: the kind of their CDI devices, the specs' folder, the prefix of their ids.
CDI_CLAIM_KIND = "vcuda.io/claim"
CDI_CLAIM_FOLDER = "/var/run/cdi"
CLAIM_PREFIX = "dra@"

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NVIDIA_DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"

# The kernel driver's folder below /proc.
KERNEL_DRIVER = "driver/nvidia"
# The file that `softgpu create /run/softgpu` makes; the same path in a container.
SOFTWARE_GPU_STATE = "/run/softgpu/softgpu.state"

# Annotations that the engine itself writes; pod authors cannot set them.
CONTAINERD_POD_UID = "io.kubernetes.cri.sandbox-uid"
CONTAINERD_POD_NAMESPACE = "io.kubernetes.cri.sandbox-namespace"
CONTAINERD_POD_NAME = "io.kubernetes.cri.sandbox-name"
CONTAINERD_CONTAINER_NAME = "io.kubernetes.cri.container-name"
CONTAINERD_CONTAINER_TYPE = "io.kubernetes.cri.container-type"
CONTAINERD_SANDBOX_ID = "io.kubernetes.cri.sandbox-id"
CONTAINERD_IMAGE = "io.kubernetes.cri.image-name"
CRIO_POD_UID = "io.kubernetes.pod.uid"
CRIO_POD_NAMESPACE = "io.kubernetes.pod.namespace"
CRIO_POD_NAME = "io.kubernetes.pod.name"
CRIO_CONTAINER_NAME = "io.kubernetes.container.name"
CRIO_IMAGE = "io.kubernetes.cri-o.ImageName"
CRIO_CONTAINER_TYPE = "io.kubernetes.cri-o.ContainerType"
# The container's own annotations, as JSON; in config.json CRI-O adds the pod's to them.
CRIO_ANNOTATIONS = "io.kubernetes.cri-o.Annotations"
CRIO_SANDBOX_ID = "io.kubernetes.cri-o.SandboxID"
SANDBOX = "sandbox"
# nerdctl's annotation with the container's name.
NERDCTL_NAME = "nerdctl/name"
CONTAINER_MANAGER = "io.container.manager"
CONTAINER_MANAGER_CRIO = "cri-o"
CONTAINER_MANAGER_PODMAN = "libpod"
PODMAN_PREFIX = "io.podman."
# Added in memory if the container may come from Podman.
PODMAN_UNPROVEN = PODMAN_PREFIX + "unproven"

# Paths in the container; libvcuda/vcuda_abi.h has the same.
GUEST_DIR = "/usr/local/vcuda"
GUEST_LIMITS = GUEST_DIR + "/limits"
GUEST_USAGE = GUEST_DIR + "/usage"
GUEST_DRIVER = GUEST_DIR + "/driver"
GUEST_MPS = GUEST_DIR + "/mps"
# Names of the driver's real libraries below GUEST_DRIVER, by the library that the shim replaces.
PRIVATE_DRIVER = {"libcuda.so": "cuda", "libnvidia-ml.so": "nvml"}
GUEST_CUDA = f"{GUEST_DRIVER}/{PRIVATE_DRIVER['libcuda.so']}"
# The answer to Allocate for engines that drop its annotations: a mount at
# GUEST_REQUESTS/<resource> of <state-dir>/requests/<resource>/<amount>.
GUEST_REQUESTS = GUEST_DIR + "/request"
REQUESTS = "requests"
