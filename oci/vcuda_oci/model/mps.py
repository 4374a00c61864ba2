"""What MPS cannot give a request, and the limits of a container's namespace.

Pure, so that schedulers refuse a request as the node does.
"""

from __future__ import annotations

from . import policies
from .allocation import Allocation
from .errors import VcudaError
from .policies import Terms
from .request import Part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WHAT = "isolation mps"
_FIRST_DRIVER = 615  # with version 3 of the control interface
_FIRST_WITH_PARTITIONS = 590  # static ones of version 2
_FIRST_TO_BIND = 620  # where a namespace can have a static partition
SPACE = "n"  # begins the name of each container's namespace
_MIB = 1 << 20
# The driver's limit counts contexts, which the share does not: as libvcuda/shim/entry/mps.c.
_CONTEXT_MIB = 512


class Limits:
    """What a namespace gives each client. percent: of the multiprocessors. mib: MiB of memory."""

    def __init__(self, percent: int, mib: int) -> None:
        self.percent, self.mib = percent, mib

    @property
    def as_listed(self) -> tuple[float, int]:
        """Percentage, and bytes."""
        return float(self.percent), self.mib * _MIB


def has_namespaces(driver: str) -> bool:
    """driver: its version, "615.10"; "": not known."""
    return _major(driver) >= _FIRST_DRIVER


def has_partitions(driver: str) -> bool:
    """driver: as above."""
    return _major(driver) >= _FIRST_WITH_PARTITIONS


def has_partitions_in_namespaces(driver: str) -> bool:
    """Whether the server keeps a container in its static partition; else the shim does."""
    return _major(driver) >= _FIRST_TO_BIND


def _major(driver: str) -> int:
    major = driver.partition(".")[0]
    return int(major) if major.isdigit() else 0


def percent_of(held: Allocation) -> int:
    """Of the multiprocessors that the container sees: all of its partition, if it has one."""
    return 100 if held.partition else held.shares[0].core_percent


def limits_of(held: Allocation) -> Limits:
    share = held.shares[0]
    return Limits(percent_of(held), -(-share.memory_bytes // _MIB) + _CONTEXT_MIB)


def space_of(held: Allocation) -> str:
    """The name of the container's namespace: short, since a socket's path may have 107 bytes."""
    from hashlib import sha256  # late: only for containers under MPS

    limits = limits_of(held)
    text = f"{held.id} {limits.percent} {limits.mib}"
    if held.partition:
        text += f" {held.partition}"
    return SPACE + sha256(text.encode()).hexdigest()[:10]


def partitions_of(held: Iterable[Allocation], setting: Sequence[int]) -> Sequence[int]:
    """The layout of a GPU's static partitions: it cannot change while the GPU has containers.

    held: its containers. setting: for a GPU without one.
    """
    return next((one.partitions for one in held), setting)


def free_partition(held: Sequence[Allocation], layout: Sequence[int], core: int) -> int:
    """The narrowest partition that is free and at least `core` wide, from 1 on; 0: none is."""
    taken = {one.partition for one in held}
    free = [at for at, percent in enumerate(layout, 1) if at not in taken and percent >= core]
    return min(free, key=lambda at: layout[at - 1], default=0)


def chunks_of(layout: Sequence[int], total: int) -> list[int]:
    """How many of the `total` chunks of a GPU's multiprocessors each partition gets: all together
    as many as their sum is, and each within one of its own percentage."""
    exact = [percent * total for percent in layout]
    found = [hundredths // 100 for hundredths in exact]
    last = sum(exact) // 100 - sum(found)
    for at in sorted(range(len(exact)), key=lambda at: -(exact[at] % 100))[:last]:
        found[at] += 1
    return found


def check(terms: Terms, parts: Sequence[Part], where: str) -> None:
    """Raises VcudaError: one container with these parts asks for what MPS cannot give."""
    if terms.policy != policies.FIXED:
        what = f"{WHAT}: a share cannot be {terms.policy}"
        raise VcudaError(what, where, "use policy fixed")
    if terms.latency != policies.NORMAL:
        what = f"{WHAT}: latency means nothing, since no container waits for a turn"
        raise VcudaError(what, where, "leave latency out")
    if terms.idle_suspend:
        raise VcudaError(f"{WHAT}: cannot be suspended", where, "leave idle-suspend out")
    if len(parts) != 1 or not 1 <= parts[0].core <= 100:
        what = f"{WHAT}: a container has a share of one GPU; it asks for more"
        raise VcudaError(what, where, "ask for at most core 100")
