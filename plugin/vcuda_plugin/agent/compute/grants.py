"""Run the arbiter on a node: shares from the ledger, demand from the usage pages, grants into the
limits pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.policies import FIXED
from vcuda_oci.pages.limits_in_place import Turn

from ..ledger.records import LedgerChanges
from .container_pages import RENEWAL_NS, ContainerPages
from .shared_gpu import SharedGpu

PERIOD_SECONDS = 0.05
# If no container wants or uses anything, all have their guarantee, so the next sample may come
# later.
IDLE_SECONDS = 0.1
# With many containers sampling may take this part of a core, down to this pace.
SAMPLING_PART = 0.003
LONGEST_SECONDS = 0.3
# Pace if no grant can change: how late a new container is found, which has its guarantee meanwhile.
NO_GRANTS_SECONDS = 0.5
# How often an arbiter beside another checks whether that one has ended.
_PLACE_SECONDS = 0.1
# How long the end waits for another writer of the pages.
_END_SECONDS = 1.0


class Arbiter:
    """The node's only arbiter, as a context manager; its end restores all reserved rates.

    beside: while another arbiter runs here, wait for its end in `take_place`.
    is_only: whether this arbiter has its place. sampled_at: time.monotonic() of its last sample.

    Raises VcudaError: another arbiter runs here. After a kill its grants expire (LEASE_NS).
    """

    def __init__(self, state_dir: str, beside: bool = False) -> None:
        path = state_dir + "/arbiter.lock"
        self._lock = _lock_of(path)
        self.is_only = self._try_lock()
        if not self.is_only and not beside:
            os.close(self._lock)
            hint = "find it with 'fuser' and end it"
            raise VcudaError("another arbiter grants here", path, hint)
        self._node = Node(state_dir)
        self.sampled_at = time.monotonic()

    def __enter__(self) -> Arbiter:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_only:
            self._node.close()
        os.close(self._lock)

    async def take_place(self) -> None:
        """Wait until no other arbiter runs here; it is then this one's place."""
        while not self.is_only:
            await asyncio.sleep(_PLACE_SECONDS)
            self.is_only = self._try_lock()

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def run(self, over: threading.Lock) -> None:
        """Sample until `over` is released. In a thread, which costs a third of waking an event
        loop.
        """
        while not over.acquire(timeout=self.sample()):
            pass

    def sample(self) -> float:
        """Take a sample; return seconds until the next is due."""
        began = time.thread_time()
        active = self._node.sample()
        self.sampled_at = time.monotonic()
        if not self._node.grants_anything:
            return NO_GRANTS_SECONDS
        least = PERIOD_SECONDS if active else IDLE_SECONDS
        return min(max(least, (time.thread_time() - began) / SAMPLING_PART), LONGEST_SECONDS)


class Node:
    """The containers that share GPUs under a policy with changing grants."""

    def __init__(self, state_dir: str, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._ledger, self._clock = Ledger(state_dir), clock
        self._records: dict[str, tuple[tuple[int, int], Allocation]] = {}
        self._open: dict[str, ContainerPages] = {}
        self._by_gpu: list[SharedGpu] | None = None
        self._due: dict[str, ContainerPages] = {}  # with rates to be written
        self._renewal_ns = 0
        self._changes = LedgerChanges(self._ledger.allocations)

    def sample(self) -> bool:
        """Read every page, write changed rates. Return whether any container wants or uses GPU
        time.
        """
        self._follow_the_ledger()
        moved = set()
        for id, pages in list(self._open.items()):
            try:
                if pages.read(self._clock):
                    moved.add(id)
            except OSError:
                self._give_up(id)
        now, gpus = self._clock(), self._gpus()
        for gpu in gpus:
            if not (gpu.rests and gpu.ids.isdisjoint(moved)):
                self._due.update(gpu.sample(now))
        if self._due or now > self._renewal_ns:
            self._grant()
        return any(gpu.active for gpu in gpus)

    def _grant(self) -> None:
        """Write due rates, and renew present ones when it is time."""
        now = self._clock()
        # Without the lock nothing is written: the reserved rates apply.
        with contextlib.suppress(OSError), Turn(self._ledger.state_dir) as mine:
            # Another writer will be done by the next sample; a grant lasts longer than that.
            if mine:
                self._write(self._due, now, ContainerPages.grant)
                self._due.clear()
            if mine and now > self._renewal_ns:
                self._write(self._open, now, ContainerPages.renew)
                self._renewal_ns = now + RENEWAL_NS

    def _write(
        self,
        those: dict[str, ContainerPages],
        now: int,
        put: Callable[[ContainerPages, int], None],
    ) -> None:
        for id, pages in list(those.items()):
            try:
                put(pages, now)
            except OSError:
                self._give_up(id)

    @property
    def grants_anything(self) -> bool:
        """Whether any container has a grant that may change."""
        return bool(self._open)

    def _gpus(self) -> list[SharedGpu]:
        """The shared GPUs; cached until a container starts or ends."""
        if self._by_gpu is None:
            sharing: dict[str, list[tuple[str, ContainerPages, int]]] = {}
            for id, pages in self._open.items():
                for at, share in enumerate(pages.allocation.shares):
                    sharing.setdefault(share.uuid, []).append((id, pages, at))
            self._by_gpu = [SharedGpu(those) for those in sharing.values()]
        return self._by_gpu

    def close(self) -> None:
        """Restore the reserved rates of all containers."""
        with contextlib.suppress(OSError), Turn(self._ledger.state_dir, _END_SECONDS) as mine:
            for id in self._open if mine else ():
                with contextlib.suppress(OSError):  # its grant expires
                    self._open[id].restore()
        for id in list(self._open):
            self._close(id)

    def _follow_the_ledger(self) -> None:
        """Open the pages of new containers; close those of ended ones and renewed pages."""
        if not self._changes.happened():
            return
        found = dict(self._stamps())
        for id, (stamp, before) in list(self._records.items()):
            if found.get(id) == stamp:
                continue
            now = self._record(id) if id in found else None
            if now and _differ_in_suspension(before, now):
                self._records[id] = (found[id], now)
                if id in self._open:
                    self._open[id].follow(now)
            else:
                del self._records[id]
                self._close(id)
        for id, stamp in found.items():
            if id not in self._records:
                allocation = self._record(id)
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
                    self._by_gpu = None
                except (OSError, ValueError):
                    # Being released, or incomplete: it retains its rate.
                    self._changes.forget()

    def _record(self, id: str) -> Allocation | None:
        """None: removed; or broken: its share is unknown, and nothing new is placed beside it."""
        try:
            return self._ledger.get(id)
        except VcudaError:
            return None

    def _stamps(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Each record's id and stamps, which differ after the record is replaced."""
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
        """Close pages after an error; they are opened again in the next sample."""
        self._close(id)
        self._changes.forget()

    def _close(self, id: str) -> None:
        if id in self._open:
            self._open.pop(id).close()
            self._due.pop(id, None)
            self._by_gpu = None


def _differ_in_suspension(one: Allocation, other: Allocation) -> bool:
    """Whether two records of a container differ, and in nothing else."""
    awake = [each.replaced(suspension=None) for each in (one, other)]
    return awake[0] == awake[1] and one != other


def _lock_of(path: str) -> int:
    """The descriptor of the arbiter's lock; closing it releases the lock. Raises VcudaError."""
    try:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        what = f"cannot be opened: {error.strerror}"
        raise VcudaError(what, path, "run as root, or set state-dir") from error
