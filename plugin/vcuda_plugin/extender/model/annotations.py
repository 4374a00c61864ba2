"""Annotation and label names that only a scheduler reads or writes."""

from __future__ import annotations

# Annotations that a pod's author may set.
PLACEMENT = "vcuda.io/placement"
HAMI_GPU_ORDER, HAMI_NODE_ORDER = "hami.io/gpu-scheduler-policy", "hami.io/node-scheduler-policy"
USE_UUID = ("vcuda.io/use-gpu-uuid", "nvidia.com/use-gpuuuid")
NOT_UUID = ("nvidia.com/nouse-gpuuuid",)
USE_MODEL = ("vcuda.io/use-gpu-model", "nvidia.com/use-gputype")
NOT_MODEL = ("nvidia.com/nouse-gputype",)
# Which pods may share a GPU: the prefixes and names of KubeShare 2 and 1.
TENANCY_PREFIXES = ("sharedgpu/", "kubeshare/")
TENANCY_WORDS = ("GPUID", "sched_affinity", "sched_anti-affinity", "sched_exclusion")

# Set by an operator on a node: UUIDs or indexes of GPUs that get no new pods.
CORDONED = "vcuda.io/cordoned-gpus"
# Labels that hold a node's GPU model, used without the agent's annotation.
MODEL_LABELS = ("gaia.tencent.com/gpu-model", "nvidia.com/gpu.product")
# Default labels for the GPU model and pool that quotas distinguish.
QUOTA_MODEL_LABELS = ("gaia.tencent.com/gpu-model", "tkestack.io/gpu-model")
QUOTA_POOL_LABELS = ("gaia.tencent.com/gpu-pool", "tkestack.io/gpu-pool")

# Written at bind for programs that read GPUManager's annotations.
# PREDICATE_TIME holds nanoseconds since 1970.
PREDICATE_TIME = "tencent.com/predicate-time"
PREDICATE_NODE = "tencent.com/predicate-node"
PREDICATE_GPU = "tencent.com/predicate-gpu-idx-"  # followed by the container's index
GPU_ASSIGNED = "tencent.com/gpu-assigned"
