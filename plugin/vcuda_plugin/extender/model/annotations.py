"""The names on pods and nodes that only a scheduler reads or writes."""

from __future__ import annotations

from vcuda_oci import policies

# What a pod's author may say.
PLACEMENT = "vcuda.io/placement"
HAMI_GPU_ORDER, HAMI_NODE_ORDER = "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"
USE_UUID = ("vcuda.io/use-gpu-uuid", "nvidia.com/use-gpuuuid")
NOT_UUID = ("nvidia.com/nouse-gpuuuid",)
USE_MODEL = ("vcuda.io/use-gpu-model", "nvidia.com/use-gputype")
NOT_MODEL = ("nvidia.com/nouse-gputype",)
# Beside whom it may be on a GPU, as KubeShare 2 and 1 call it.
TENANCY_PREFIXES = ("sharedgpu/", "kubeshare/")
TENANCY_WORDS = ("GPUID", "sched_affinity", "sched_anti-affinity", "sched_exclusion")
POLICY_WORDS = {
    "vcuda.io/policy": "policy",
    "vcuda.io/weight": policies.WEIGHT,
    "vcuda.io/priority": policies.PRIORITY,
    "tencent.com/vcuda-core-limit": policies.CORE_LIMIT,
}

# What an operator may say of a node: GPUs by UUID or index that get nothing new.
CORDONED = "vcuda.io/cordoned-gpus"
# Where a node says its model, without our agent's annotation.
MODEL_LABELS = ("gaia.tencent.com/gpu-model", "nvidia.com/gpu.product")
# By which quotas tell nodes apart, if nothing else is said.
QUOTA_MODEL_LABELS = ("gaia.tencent.com/gpu-model", "tkestack.io/gpu-model")
QUOTA_POOL_LABELS = ("gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool")

# What is written at bind for whoever reads GPUManager's; the first is nanoseconds since 1970.
PREDICATE_TIME = "tencent.com/predicate-time"
PREDICATE_NODE = "tencent.com/predicate-node"
PREDICATE_GPU = "tencent.com/predicate-gpu-idx-"  # and the container's index
GPU_ASSIGNED = "tencent.com/gpu-assigned"
