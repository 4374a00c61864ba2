"""Read the terms of a pod's shares, such as the compute policy, from its annotations: pure.

The scheduler extender checks them. The node agent passes them to the claim.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcuda_oci.model import policies

# GPUManager's ceiling: a container with one has an elastic share.
_CORE_LIMIT = "tencent.com/vcuda-core-limit"
# KubeShare's maximum of compute, as a part of one GPU; its minimum is the reserved core.
# Source: KubeShare, README.md, "SharePod Specification".
KUBESHARE_LIMITS = ("sharedgpu/gpu_limit", "kubeshare/gpu_limit")
# The word of a request by the annotation that holds it.
WORDS = {
    "vcuda.io/policy": "policy",
    "vcuda.io/weight": policies.WEIGHT,
    "vcuda.io/priority": policies.PRIORITY,
    "vcuda.io/latency": policies.LATENCY,
    "vcuda.io/idle-suspend": policies.IDLE_SUSPEND,
    "vcuda.io/isolation": policies.ISOLATION,
    _CORE_LIMIT: policies.CORE_LIMIT,
}
# Longer than any valid value.
_LONGEST = 100


def words_of(annotations: Mapping[str, object]) -> dict[str, str]:
    """The request's words, unchecked, as policies.parse takes them."""
    words = {
        word: str(annotations[name])[:_LONGEST]
        for name, word in WORDS.items()
        if name in annotations
    }
    for name in KUBESHARE_LIMITS:
        if name in annotations:
            words.setdefault(policies.CORE_LIMIT, _percent(str(annotations[name])[:_LONGEST]))
    return words


def _percent(part: str) -> str:
    """KubeShare's "0.6" as "60", "0.333" as "33"; whole GPUs as "100"; other text as it is."""
    whole, _, rest = part.partition(".")
    digits = whole + rest
    if not (digits.isascii() and digits.isdigit()):
        return part
    return str(min(int(whole or "0") * 100 + int(rest[:2].ljust(2, "0")), 100))
