"""Which GPUs are not fit for new containers: a file that the node agent keeps for every claim.

``<state-dir>/unhealthy.json``: ``{"boot": "…", "gpus": {"GPU-…": {"reason", "xid", "until"}}}``;
no file, no such GPU. It holds, whoever is alive, until the agent finds the GPU fit again, until its
`until`, until somebody removes it, or until the host was booted.
"""

from __future__ import annotations

import os
import time

from ..model import jsontree
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_BOOT = "/proc/sys/kernel/random/boot_id"
_MOST_BYTES = 1 << 20


class Ailment:
    """What is wrong with one GPU.

    reason: why it does not answer; "": it does. xid: the last Xid that counts, 0 for none; it does
    so until the moment `until`, seconds of CLOCK_MONOTONIC; None: until it was reset.
    """

    def __init__(self, reason: str, xid: int, until: float | None) -> None:
        self.reason, self.xid, self.until = reason, xid, until

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ailment) and self.__dict__ == other.__dict__

    def __repr__(self) -> str:
        return f"Ailment({', '.join(map(repr, self.__dict__.values()))})"

    def why(self, now: float) -> str:
        """Such as "Xid 79"; "": it is fit again."""
        if self.reason:
            return self.reason
        return f"Xid {self.xid}" if self.xid and (self.until is None or now < self.until) else ""


def path_in(state_dir: str) -> str:
    return state_dir + "/unhealthy.json"


def reasons(state_dir: str) -> dict[str, str]:
    """Why each GPU is unhealthy that is so now, by UUID."""
    found = read(state_dir)
    now = time.monotonic() if found else 0
    return {uuid: why for uuid, ailment in found.items() if (why := ailment.why(now))}


def read(state_dir: str) -> dict[str, Ailment]:
    """What the file says, by UUID. One that is not root's own, not whole, or of before the host was
    booted says nothing: it is advice, and no container's limits depend on it.
    """
    path = path_in(state_dir)
    try:
        files.only_ours(path)
        tree = jsontree.loads(files.read(path, _MOST_BYTES).decode())
        if not isinstance(tree, dict) or tree.get("boot") != _boot():
            return {}
        return {uuid: _ailment(**said) for uuid, said in tree["gpus"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write(state_dir: str, ailments: Mapping[str, Ailment]) -> None:
    """From now on these are unhealthy. Raises OSError."""
    path = path_in(state_dir)
    if not ailments:
        files.remove(path)
        return
    os.makedirs(state_dir, 0o755, exist_ok=True)
    gpus = {uuid: ailment.__dict__ for uuid, ailment in ailments.items()}
    tree: dict[str, Any] = {"boot": _boot(), "gpus": gpus}
    files.replace(path, jsontree.dumps(tree).encode() + b"\n", 0o644)


def _ailment(reason: str, xid: int, until: float | None) -> Ailment:
    """Raises TypeError: not an ailment."""
    when = until is None or type(until) in (float, int)
    if not (isinstance(reason, str) and type(xid) is int and when):
        raise TypeError("not an ailment")
    return Ailment(reason, xid, until)


def _boot() -> str:
    return files.read(_BOOT, 64).decode().strip()
