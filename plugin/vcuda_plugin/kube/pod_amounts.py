"""How much of GPUs a container of a pod asks for, as its object says it: pure.

The scheduler extender counts it so, and the node agent tells it the claim: of HAMi's resources the
kubelet knows nothing but how many GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vcuda_oci.errors import VcudaError
from vcuda_oci.parts import Amounts, Part

from .quantity import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

# Beside a resource of whole GPUs, such as nvidia.com/gpu: MiB, percent and percent of each.
HAMI_MEMORY, HAMI_MEMORY_PERCENT, HAMI_CORES = "mem", "mem-percentage", "cores"
MOST_GPUS = 64  # of one container; decision.py reads no more
MIB = 1 << 20
MOST_MIB = 1 << 30  # and sums of bytes stay in 64 bits


def asked(container: Mapping[str, Any]) -> dict[str, Any]:
    """Amount by resource. Of extended ones limits and requests are the same, or the requests were
    left out."""
    resources = container.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    both = (resources.get(key) for key in ("requests", "limits"))
    return {name: said for each in both if isinstance(each, dict) for name, said in each.items()}


def number(asked: Mapping[str, Any], resource: str, where: str) -> int | None:
    """None: not asked for, or the resource is off (""). Raises VcudaError: no whole number."""
    if not resource or resource not in asked:
        return None
    value = whole(asked[resource])
    if value is None:
        shown = str(asked[resource])[:40]
        raise VcudaError(f"{resource} cannot be '{shown}'", where, "write a whole number")
    return value


def of_gpus(asked: Mapping[str, Any], resource: str, where: str) -> Amounts | None:
    """What is asked for of each of so many of `resource`; None: of none.

    Raises VcudaError: it makes no sense. Source: HAMi, docs/config.md: left out, all of the memory
    and any of the compute.
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
