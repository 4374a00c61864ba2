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
    from collections.abc import Sequence

WHAT = "isolation mps"
_FIRST_DRIVER = 615  # with version 3 of the control interface
SPACE = "n"  # begins the name of each container's namespace
_MIB = 1 << 20
# The driver's limit counts contexts, which the share does not: as libvcuda/shim/entry/mps.c.
_CONTEXT_MIB = 512


class Limits:
    """What a namespace gives each client. percent: of the multiprocessors. mib: MiB of memory."""

    __slots__ = ("mib", "percent")

    def __init__(self, percent: int, mib: int) -> None:
        self.percent, self.mib = percent, mib

    @property
    def as_listed(self) -> tuple[float, int]:
        """Percentage, and bytes."""
        return float(self.percent), self.mib * _MIB


def has_namespaces(driver: str) -> bool:
    """driver: its version, "615.10"; "": not known."""
    major = driver.partition(".")[0]
    return major.isdigit() and int(major) >= _FIRST_DRIVER


def limits_of(held: Allocation) -> Limits:
    share = held.shares[0]
    return Limits(share.core_percent, -(-share.memory_bytes // _MIB) + _CONTEXT_MIB)


def space_of(held: Allocation) -> str:
    """The name of the container's namespace: short, since a socket's path may have 107 bytes."""
    from hashlib import sha256  # late: only for containers under MPS

    limits = limits_of(held)
    text = f"{held.id} {limits.percent} {limits.mib}"
    return SPACE + sha256(text.encode()).hexdigest()[:10]


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
