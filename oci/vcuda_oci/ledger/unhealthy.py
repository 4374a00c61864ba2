"""The GPUs that get no new containers: unhealthy ones, and drained ones.

``<state-dir>/unhealthy.json``: ``{"boot": "…", "gpus": {"GPU-…": {"reason", "xid", "until"}}}``.
The agent writes it, claims read it. No file means no unhealthy GPU. An entry is valid until the
agent finds the GPU healthy again, until its `until`, or until the next boot, also while no agent
runs. An operator may remove the file.

``<state-dir>/drained.json``: ``{"GPU-…": {"since": 1.5, "ended": true}}``. `vcuda drain` writes it
with the ledger's lock before it moves the first container, `vcuda undrain` takes entries out.
"""

from __future__ import annotations

import os
import time

from ..model import jsontree
from ..model.record import Record
from ..placement.eligible import DRAINED
from ..system import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, TypeVar

    _Entry = TypeVar("_Entry")

_BOOT = "/proc/sys/kernel/random/boot_id"
# Seconds since 1970; a later moment is no time of a drain.
_LATEST = 1e11
_MOST_BYTES = 1 << 20


class GpuFault(Record):
    """A fault of one GPU.

    reason: why it does not answer; "": it answers. xid: the last relevant Xid; 0: none. until: end
    of the Xid's effect in seconds of CLOCK_MONOTONIC; None: the GPU's next reset.
    """

    def __init__(self, reason: str, xid: int, until: float | None) -> None:
        self.reason, self.xid, self.until = reason, xid, until

    def why(self, now: float) -> str:
        """The reason, such as "Xid 79"; "": the GPU is healthy again."""
        if self.reason:
            return self.reason
        return f"Xid {self.xid}" if self.xid and (self.until is None or now < self.until) else ""


class Drain(Record):
    """A drained GPU. since: seconds since 1970. ended: False: its drain works, or was killed."""

    def __init__(self, since: float, *, ended: bool) -> None:
        self.since, self.ended = since, ended


def path_in(state_dir: str) -> str:
    return state_dir + "/unhealthy.json"


def drained_in(state_dir: str) -> str:
    return state_dir + "/drained.json"


def reasons(state_dir: str) -> dict[str, str]:
    """The reason for each GPU that gets no new containers now, by UUID."""
    found = read(state_dir)
    now = time.monotonic() if found else 0
    sick = {uuid: why for uuid, fault in found.items() if (why := fault.why(now))}
    return with_drained(sick, state_dir)


def with_drained(sick: dict[str, str], state_dir: str) -> dict[str, str]:
    """`sick` with the drained GPUs; a GPU that is both has both reasons."""
    drained = read_drained(state_dir)
    more = {uuid: f"{sick[uuid]}, {DRAINED}" if uuid in sick else DRAINED for uuid in drained}
    return {**sick, **more}


def read_drained(state_dir: str) -> dict[str, Drain]:
    """The drained GPUs by UUID. A file that others may write, or that is not whole, is ignored."""
    return _read(
        drained_in(state_dir),
        lambda tree: {uuid: _drain(**fields) for uuid, fields in tree.items()},
    )


def write_drained(state_dir: str, drained: Mapping[str, Drain]) -> None:
    """Replace the list of drained GPUs; the caller holds the ledger's lock. Raises OSError."""
    path = drained_in(state_dir)
    if not drained:
        files.remove(path)
        return
    tree: dict[str, Any] = {uuid: drain.fields() for uuid, drain in drained.items()}
    files.replace(path, jsontree.dumps(tree).encode() + b"\n", 0o644)


def read(state_dir: str) -> dict[str, GpuFault]:
    """The file's faults, by UUID.

    A file that others may write, that is not whole, or that an earlier boot left is ignored: the
    file is advice, and no container's limits depend on it.
    """

    def faults(tree: Any) -> dict[str, GpuFault]:
        gpus = tree["gpus"] if tree["boot"] == _boot() else {}
        return {uuid: _fault(**fields) for uuid, fields in gpus.items()}

    return _read(path_in(state_dir), faults)


def write(state_dir: str, faults: Mapping[str, GpuFault]) -> None:
    """Replace the list. faults: by UUID. Raises OSError."""
    path = path_in(state_dir)
    if not faults:
        files.remove(path)
        return
    os.makedirs(state_dir, 0o755, exist_ok=True)
    gpus = {uuid: fault.fields() for uuid, fault in faults.items()}
    tree: dict[str, Any] = {"boot": _boot(), "gpus": gpus}
    files.replace(path, jsontree.dumps(tree).encode() + b"\n", 0o644)


def _read(path: str, parse: Callable[[Any], dict[str, _Entry]]) -> dict[str, _Entry]:
    """A file of root's, by UUID; {}: there is none, others may write it, or it is not whole."""
    try:
        return parse(jsontree.loads(files.read_ours(path, _MOST_BYTES)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _fault(reason: str, xid: int, until: float | None) -> GpuFault:
    """A fault from the file. Raises TypeError: a field has a wrong type."""
    is_time = until is None or type(until) in (float, int)
    if not (isinstance(reason, str) and type(xid) is int and is_time):
        raise TypeError("not a GPU's fault")
    return GpuFault(reason, xid, until)


def _drain(since: float, ended: bool) -> Drain:
    """A drained GPU from the file. Raises TypeError: a field has a wrong type."""
    if type(since) not in (float, int) or not 0 <= since < _LATEST or type(ended) is not bool:
        raise TypeError("not a drained GPU")
    return Drain(since, ended=ended)


def _boot() -> str:
    return files.read(_BOOT, 64).decode().strip()
