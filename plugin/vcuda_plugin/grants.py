"""Runs the arbiter on a node: who holds what from the ledger, who wants what from the usage pages,
grants into the limits pages.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import TYPE_CHECKING

from vcuda_oci.errors import VcudaError
from vcuda_oci.ledger import Ledger
from vcuda_oci.policies import FIXED

from .arbiter import Tenant, grants
from .container_pages import ContainerPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from vcuda_oci.allocation import Allocation

    from .demand import Sign

PERIOD_SECONDS = 0.05
# Nobody wants or uses anything: each has its guarantee at hand, so the next look may take longer.
IDLE_SECONDS = 0.1
# With many containers a look is let take a hundredth of a core, down to this pace.
LONGEST_SECONDS = 0.2
LOOKS_PART = 0.01
# A file system's times move in steps of up to 10 ms: two changes in one step look like one.
_GRAIN_NS = 50_000_000


class Arbiter:
    """The one that grants on this node. At the end of the block each has what is reserved for it.

    Raises VcudaError: another arbiter runs here. Killed, its grants end by themselves (LEASE_NS).
    """

    def __init__(self, state_dir: str) -> None:
        self._lock = _only_one(state_dir)
        self._node = Node(state_dir)

    def __enter__(self) -> Arbiter:
        return self

    def __exit__(self, *_: object) -> None:
        self._node.close()
        os.close(self._lock)

    def look(self) -> float:
        """Look once; seconds until the next look is due."""
        began = time.thread_time()
        least = PERIOD_SECONDS if self._node.look() else IDLE_SECONDS
        return min(max(least, (time.thread_time() - began) / LOOKS_PART), LONGEST_SECONDS)


class Node:
    """The containers that share GPUs under a policy by which somebody's grant may change."""

    def __init__(self, state_dir: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._ledger, self._clock = Ledger(state_dir), clock
        self._records: dict[str, tuple[tuple[int, int], Allocation]] = {}
        self._open: dict[str, ContainerPages] = {}
        self._followed = 0  # the time of the ledger's last change that is followed; 0: look again

    def look(self) -> bool:
        """Read every page, write what changed. Whether anybody wants or uses GPU time."""
        self._follow_the_ledger()
        by_gpu: dict[str, list[tuple[str, int, Sign]]] = {}
        rates = {}
        for id, pages in list(self._open.items()):
            try:
                readings = pages.read(self._clock)
            except OSError:
                self._give_up(id)
                continue
            rates[id] = list(pages.rates)
            for at, share in enumerate(pages.allocation.shares):
                sign = pages.demands[at].see(readings[at])
                by_gpu.setdefault(share.uuid, []).append((id, at, sign))
        active = False
        for sharing in by_gpu.values():
            tenants = self._tenants(sharing)
            active = active or any(tenant.wants or tenant.used_ppm for tenant in tenants)
            for (id, at, _), rate in zip(sharing, grants(tenants)):
                rates[id][at] = rate
        for id, granted in rates.items():
            if any(share.policy != FIXED for share in self._open[id].allocation.shares):
                try:
                    self._open[id].grant(granted, self._clock())
                except OSError:
                    self._give_up(id)
        return active

    def _tenants(self, sharing: Sequence[tuple[str, int, Sign]]) -> list[Tenant]:
        """The tenants of one GPU: (id, which share of it, what it showed) of each."""
        signs, now = [sign for _, _, sign in sharing], self._clock()
        tenants = []
        for this, (id, at, sign) in enumerate(sharing):
            pages = self._open[id]
            others = signs[:this] + signs[this + 1 :]
            wants, used = pages.demands[at].judge(sign, others, pages.rates[at], now)
            tenants.append(Tenant(pages.allocation.shares[at], wants, used))
        return tenants

    def close(self) -> None:
        """Each has what is reserved for it."""
        for id in list(self._open):
            try:
                self._open[id].restore()
            except OSError:
                pass  # its grant ends by itself
            self._close(id)

    def _follow_the_ledger(self) -> None:
        """Open the pages of who came, close those of who went or came back with fresh ones."""
        try:
            changed = os.stat(self._ledger.allocations).st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if changed and changed == self._followed:
            return
        # What changes right after this scan may leave the same time.
        self._followed = changed if time.time_ns() - changed > _GRAIN_NS else 0
        found = dict(self._stamps())
        for id in [id for id, (stamp, _) in self._records.items() if found.get(id) != stamp]:
            del self._records[id]
            self._close(id)
        for id, stamp in found.items():
            if id not in self._records:
                try:
                    allocation = self._ledger.get(id)
                except VcudaError:
                    continue  # broken: nothing is known of it, and nothing new is placed beside it
                if allocation:
                    self._records[id] = (stamp, allocation)
        shared = self._shared_gpus()
        for id, (_, allocation) in self._records.items():
            concerned = any(share.uuid in shared for share in allocation.shares)
            if not concerned:
                self._close(id)
            elif id not in self._open:
                try:
                    folder = f"{self._ledger.containers}/{id}"
                    self._open[id] = ContainerPages(folder, allocation)
                except (OSError, ValueError):
                    # Being released, or not whole: it keeps the rate that it has.
                    self._followed = 0

    def _stamps(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Each record's id and what differs once it is written again, which is by rename."""
        try:
            entries = list(os.scandir(self._ledger.allocations))
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name.endswith(".json"):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry.name[: -len(".json")], (status.st_ino, status.st_mtime_ns)

    def _shared_gpus(self) -> set[str]:
        return {
            share.uuid
            for _, allocation in self._records.values()
            for share in allocation.shares
            if share.policy != FIXED
        }

    def _give_up(self, id: str) -> None:
        """Its pages failed: closed, and opened anew with the next look."""
        self._close(id)
        self._followed = 0

    def _close(self, id: str) -> None:
        if id in self._open:
            self._open.pop(id).close()


def _only_one(state_dir: str) -> int:
    """The lock's descriptor; closed, it is free. Raises VcudaError."""
    path = state_dir + "/arbiter.lock"
    try:
        os.makedirs(state_dir, 0o755, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        what = f"cannot be opened: {error.strerror}"
        raise VcudaError(what, path, "run as root, or set state-dir") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise VcudaError(
            "another arbiter grants here", path, "find it with 'fuser' and end it"
        ) from None
    return fd
