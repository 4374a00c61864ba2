"""Read a container's GPU request from its pod object: pure.

The scheduler extender counts it. The node agent passes it to the claim, because the kubelet passes
only the number of GPUs and drops HAMi's other resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vcuda_hook.claims.quantity import whole
from vcuda_oci.ledger.decision import Amounts
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Part

# Suffixes of a resource of GPUs, such as nvidia.com/gpu. Per GPU: memory in MiB, memory in percent,
# compute in percent.
HAMI_MEMORY, HAMI_MEMORY_PERCENT, HAMI_CORES = "mem", "mem-percentage", "cores"
MOST_GPUS = 64  # of one container; decision.py reads no more
MIB = 1 << 20
MOST_MIB = 1 << 30  # so that sums of bytes fit in 64 bits


def asked(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the amount by resource.

    Limits override requests: for extended resources both are equal, or the requests are left out.
    """
    resources = container.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    both = (resources.get(key) for key in ("requests", "limits"))
    return {
        name: amount for each in both if isinstance(each, dict) for name, amount in each.items()
    }


def number(asked: Mapping[str, Any], resource: str, where: str) -> int | None:
    """Return an amount; None if not requested or resource is "". Raises VcudaError: not whole."""
    if not resource or resource not in asked:
        return None
    value = whole(asked[resource])
    if value is None:
        shown = str(asked[resource])[:40]
        raise VcudaError(f"{resource} cannot be '{shown}'", where, "write a whole number")
    return value


def of_gpus(asked: Mapping[str, Any], resource: str, where: str) -> Amounts | None:
    """Return the request for GPUs of `resource`, one part per GPU; None if it asks for none.

    Raises VcudaError if the amounts contradict each other. Without an amount, a container gets all
    of the memory and any of the compute. Source: HAMi, docs/config.md.
    """
    cards = number(asked, resource, where) or 0
    memory, percent, cores = (
        number(asked, resource and resource + suffix, where)
        for suffix in (HAMI_MEMORY, HAMI_MEMORY_PERCENT, HAMI_CORES)
    )
    if not cards and (memory or percent or cores):
        raise VcudaError(f"a part of a GPU without {resource}", where, "say how many")
    if cards > MOST_GPUS:
        raise VcudaError(f"more than {MOST_GPUS} GPUs", where, "ask for fewer")
    if (memory or 0) > MOST_MIB:
        raise VcudaError("more memory than any GPU has", where, "ask for less")
    if (percent or 0) > 100 or (cores or 0) > 100:
        raise VcudaError("more than 100 % of a GPU", where, "write from 1 to 100")
    if not cards:
        return None
    some_memory = memory or (percent if percent != 100 else 0)
    if cores == 100 or not (some_memory or cores):
        return Amounts((Part(100 * cards),))
    if memory:
        part = Part(cores or 1, memory * MIB)
    else:
        part = Part(cores or 1, memory_percent=percent or 100)
    return Amounts((part,) * cards, not cores)
