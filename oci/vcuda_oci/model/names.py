"""Every name that users and other systems see, once."""

from __future__ import annotations

VERSION = "0.1.0"
PROGRAM = "vcuda-container-runtime"
HOOK_PROGRAM = "vcuda-container-hook"
AGENT_PROGRAM = "vcuda-node-agent"
EXTENDER_PROGRAM = "vcuda-scheduler-extender"
COMMAND = "vcuda"
DEFAULT_CONFIG = "/etc/vcuda/config.toml"

# What a container asks for: annotations, and the same keys as variables.
ANNOTATION_PREFIX = "vcuda.io/"
ENV_PREFIX = "VCUDA_"
REQUEST_KEYS = (
    *("core", "memory", "gpu", "placement"),
    *("policy", "core-limit", "weight", "priority"),
)

# Keys below the same prefix that ask for nothing: a pod, node or engine may carry them.
OTHER_KEYS = (
    *("placement-decision", "node-gpus", "cordoned-gpus"),
    *("use-gpu-uuid", "use-gpu-model", "moved"),
)

# What the device plugin's Allocate answers: amounts in the resource's own unit.
ANNOTATION_CORE_UNITS = "vcuda.io/request.vcuda-core"
ANNOTATION_MEMORY_UNITS = "vcuda.io/request.vcuda-memory"
ANNOTATION_GPU_UNITS = "vcuda.io/request.gpu"
# As many GPUs, of each of which the pod's object says how much: HAMi's resources.
ANNOTATION_VIRTUAL_UNITS = "vcuda.io/request.vgpu"
ANNOTATIONS_OF_UNITS = (
    *(ANNOTATION_CORE_UNITS, ANNOTATION_MEMORY_UNITS),
    *(ANNOTATION_GPU_UNITS, ANNOTATION_VIRTUAL_UNITS),
)
MEMORY_UNIT_BYTES = 256 * 1024 * 1024
# The same amounts under GPUManager's names, for whoever reads those.
GPUMANAGER_CORE, GPUMANAGER_MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"

# The scheduler extender's decision, on the pod; and the agent's word of its GPUs, on the node.
ANNOTATION_DECISION = "vcuda.io/placement-decision"
ANNOTATION_NODE_GPUS = "vcuda.io/node-gpus"
# What is known of a pod before its containers are created: <state-dir>/decisions/<pod uid>.json.
DECISIONS = "decisions"
# Where the agent takes requests to look up one pod: <state-dir>/pods.sock.
POD_LOOKUP = "pods.sock"

# The CDI devices, as in `--device vcuda.io/gpu=0`, and where engines look for their spec.
CDI_KIND = "vcuda.io/gpu"
CDI_SPEC = "/var/run/cdi/vcuda.json"
# How the ids of named slices begin. No container's id has an @.
SLICE_PREFIX = "cdi@"

NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
NVIDIA_DRIVER_CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"

# Where the kernel's driver shows itself, below /proc.
KERNEL_DRIVER = "driver/nvidia"
# What `softgpu create /run/softgpu` makes, on the host; a container sees it there too.
SOFTWARE_GPU_STATE = "/run/softgpu/softgpu.state"

# What the engine itself writes, and nobody else can.
CONTAINERD_POD_UID = "io.kubernetes.cri.sandbox-uid"
CONTAINERD_POD_NAMESPACE = "io.kubernetes.cri.sandbox-namespace"
CONTAINERD_POD_NAME = "io.kubernetes.cri.sandbox-name"
CONTAINERD_CONTAINER_NAME = "io.kubernetes.cri.container-name"
CONTAINERD_CONTAINER_TYPE = "io.kubernetes.cri.container-type"
CONTAINERD_SANDBOX_ID = "io.kubernetes.cri.sandbox-id"
CRIO_POD_UID = "io.kubernetes.pod.uid"
CRIO_POD_NAMESPACE = "io.kubernetes.pod.namespace"
CRIO_POD_NAME = "io.kubernetes.pod.name"
CRIO_CONTAINER_NAME = "io.kubernetes.container.name"
CRIO_CONTAINER_TYPE = "io.kubernetes.cri-o.ContainerType"
# A container's own annotations, in JSON: CRI-O adds the pod's to those in config.json.
CRIO_ANNOTATIONS = "io.kubernetes.cri-o.Annotations"
CRIO_SANDBOX_ID = "io.kubernetes.cri-o.SandboxID"
SANDBOX = "sandbox"
# A container's name, by nerdctl.
NERDCTL_NAME = "nerdctl/name"
CONTAINER_MANAGER = "io.container.manager"
CONTAINER_MANAGER_CRIO = "cri-o"
CONTAINER_MANAGER_PODMAN = "libpod"
PODMAN_PREFIX = "io.podman."
# Added in memory where nothing proves that Podman did not make the container.
PODMAN_UNPROVEN = PODMAN_PREFIX + "unproven"

# Inside the container; libvcuda/vcuda_abi.h states the same paths.
GUEST_DIR = "/usr/local/vcuda"
GUEST_LIMITS = GUEST_DIR + "/limits"
GUEST_USAGE = GUEST_DIR + "/usage"
GUEST_DRIVER = GUEST_DIR + "/driver"
# The real libraries in there, by what the shim stands in for.
PRIVATE_DRIVER = {"libcuda.so": "cuda", "libnvidia-ml.so": "nvml"}
GUEST_CUDA = f"{GUEST_DRIVER}/{PRIVATE_DRIVER['libcuda.so']}"
# What Allocate answered, for engines that drop its annotations: at <here>/<resource> is mounted
# <state-dir>/requests/<resource>/<amount>.
GUEST_REQUESTS = GUEST_DIR + "/request"
REQUESTS = "requests"
