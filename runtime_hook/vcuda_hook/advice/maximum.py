"""The most that a share is raised to without its user: pure."""

from __future__ import annotations

from typing import NamedTuple

from vcuda_oci.model.allocation import Allocation

from . import patch
from .recommend import Advice


class Maximum(NamedTuple):
    """None: none is named."""

    core_percent: int | None = None
    memory_bytes: int | None = None

    def words(self, advice: Advice) -> dict[str, str]:
        """The figures of `vcuda limit` for the advice, up to the maximum."""
        core, memory = advice.core_percent, advice.memory_bytes
        if core is not None:
            core = min(core, self.core_percent or 100)
        if memory is not None:
            memory = min(memory, self.memory_bytes or memory)
        return patch.figures(advice._replace(core_percent=core, memory_bytes=memory))


def of(allocation: Allocation, at: int, named: Maximum) -> Maximum:
    """The maximum of share number `at`: what `named` says, else what the container asked for.

    What a container asked for of each of several GPUs is not in its record: there, and where it
    asked for no bytes, the share is never raised.
    """
    share, request = allocation.shares[at], allocation.request
    core, memory = share.core_percent, share.memory_bytes
    if len(allocation.shares) == 1:
        core = max(core, min(100, _count(request.get("core"))))
        memory = max(memory, _count(request.get("memory_bytes")))
    return Maximum(named.core_percent or core, named.memory_bytes or memory)


def _count(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
