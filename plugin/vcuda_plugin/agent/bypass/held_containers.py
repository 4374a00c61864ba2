"""The containers that hold allocations: their cgroups, and the container of a given process.

`HeldContainers.of` finds the container of a pid in this order: by the cgroups of containers that
are known, by the first process that a runtime reports, by a container id in the cgroup's path, and
for a named slice by the page that the process has mapped.
"""

from __future__ import annotations

import errno
import os
import time

from vcuda_hook.live import cgroup_folders, container_cgroups, container_processes, slices
from vcuda_hook.live.container_cgroups import Cgroups
from vcuda_oci.guest import page_file, process
from vcuda_oci.ledger import liveness
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.pages import layout, page_reader

from ..ledger.records import Records
from . import container_of_pid
from .detection import Holder, Share

# A runtime that does not know a container is asked again after a pause that doubles.
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
# The most time that one poll spends on runtimes: one that hangs must not stop the watch.
_ASKING_SECONDS = 5.0


class Held:
    """An allocation and its container.

    init: the container's first process; 0 if not known. started: the start time of that process.
    cgroups: {} while not known, and for a named slice. folder: the container's folder in cgroup v2
    on this host; "" if it has none of its own. folder_of_pages: holds its limits and usage pages.
    """

    def __init__(self, allocation: Allocation, folder_of_pages: str) -> None:
        self.allocation, self.folder_of_pages = allocation, folder_of_pages
        self.init, self.started = 0, 0
        self.cgroups: Cgroups = {}
        self.folder = ""
        self._holder: Holder | None = None
        self._ask_at, self._pause = 0.0, _FIRST_PAUSE_SECONDS

    @property
    def key(self) -> str:
        """Identify this container: a new container with the same allocation id has another key."""
        return f"{self.allocation.id} {self.allocation.container_id}"

    def holder(self) -> Holder:
        """Return name and shares. Raises OSError, ValueError: a page is removed or incomplete."""
        if self._holder is None:
            self._holder = self._read_holder()
        return self._holder

    def update(self, allocation: Allocation) -> None:
        """Take over a changed record."""
        self.allocation, self._holder = allocation, None

    def _read_holder(self) -> Holder:
        path = self.folder_of_pages + "/limits"
        page = page_reader.read_limits(page_file.read_page(path, layout.LIMITS_SIZE))
        context = {gpu.uuid: gpu.context_bytes for gpu in page.gpus}
        shares = {
            share.uuid: Share(
                share.memory_bytes,
                share.core_ceiling_percent,
                share.core_percent == 100,
                context.get(share.uuid, 0),
            )
            # While it moves, it is on one of two GPUs.
            for share in [*self.allocation.shares, *self.allocation.resident]
        }
        return Holder(_name(self.allocation), shares)

    def locate(self, now: float, own: Cgroups) -> None:
        """Ask the runtime for the first process, if that is not known and the pause is over."""
        if self.init and liveness.start_time(self.init) != self.started:
            self.init = 0
        if self.init or self.allocation.is_named_slice or now < self._ask_at:
            return
        try:
            id = self.allocation.container_id
            init = container_processes.init_of(self.allocation.runtime, id)
            started = liveness.start_time(init)
            cgroups = container_cgroups.own(init, id, own) if started else {}
        except OSError:
            started = 0
        if started:
            self.init, self.started = init, started
            self.set_cgroups(cgroups)
            self._pause = _FIRST_PAUSE_SECONDS
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)
        self._ask_at = now + self._pause

    def set_cgroups(self, cgroups: Cgroups) -> None:
        self.cgroups = cgroups
        self.folder = cgroup_folders.mounted("", cgroups["0"]) if "0" in cgroups else ""


class HeldContainers:
    """All containers of the node that hold allocations, read from the ledger."""

    def __init__(self, state_dir: str) -> None:
        self._records = Records(state_dir)
        self._held: dict[str, Held] = {}
        self._index = container_of_pid.Index({})
        self._inits: dict[int, Held] = {}
        self._unknown: dict[str, Held] = {}
        self._followed = 0  # Records.changes when the records were last taken over
        self._own = container_processes.cgroups("self")

    def follow(self) -> dict[str, Held]:
        """Read the ledger, locate new containers; return all containers by key."""
        self._read()
        now = time.monotonic()
        for held in self._held.values():
            if time.monotonic() - now < _ASKING_SECONDS:
                held.locate(now, self._own)
        known = {key: held.cgroups for key, held in self._held.items() if held.cgroups}
        self._index = container_of_pid.Index(known)
        self._inits = {held.init: held for held in self._held.values() if held.init}
        # The runtime has not been asked yet, or the agent cannot call it.
        self._unknown = {
            held.allocation.container_id: held
            for held in self._held.values()
            if not (held.init or held.cgroups or held.allocation.is_named_slice)
        }
        return self._held

    def of(self, pid: int) -> Held | None:
        """Return the container of a process, or None. Raises OSError: the process has ended."""
        cgroups = container_processes.cgroups(pid)
        key = self._index.of(cgroups)
        if key is not None:
            return self._held[key]
        first = self._inits.get(pid)
        if first and liveness.start_time(pid) == first.started:
            return first
        for name in container_of_pid.names_in(cgroups):
            if name in self._unknown:
                # Use the path for this process only; do not store it as the container's cgroup.
                named = container_cgroups.by_name(cgroups, name)
                if any(_belongs_to_root(*each) for each in named.items()):
                    return self._unknown[name]
        return self._of_slice(pid)

    def _of_slice(self, pid: int) -> Held | None:
        """Find the named slice by its usage page, which the shim maps into the process.

        The slice's record names no container. The page's contents prove nothing, because every
        user of the host can write them.
        """
        for held in self._held.values():
            if held.allocation.is_named_slice:
                try:
                    page = page_file.identity(held.folder_of_pages + "/usage")
                except OSError:
                    continue  # removed meanwhile
                if _maps(pid, page):
                    return held
        return None

    def _read(self) -> None:
        # Skip broken records: their containers are unknown, and no new share is placed beside them.
        allocations = self._records.read()
        if self._records.changes == self._followed:
            return
        self._followed = self._records.changes
        held = {}
        for allocation in allocations:
            new = Held(allocation, f"{self._records.ledger.containers}/{allocation.id}")
            known = self._held.get(new.key)
            if known:
                known.update(allocation)
            held[new.key] = known or new
        self._held = held


def _belongs_to_root(hierarchy: str, path: str) -> bool:
    """Whether root owns this cgroup and all above it; otherwise a user may have named it."""
    folder = cgroup_folders.mounted(hierarchy.lstrip("0123456789"), path)
    depth = len(path.strip("/").split("/"))
    try:
        owners = {os.lstat(folder + "/.." * up).st_uid for up in range(depth + 1)}
    except OSError:
        return False
    return bool(folder) and owners == {0}


def _name(allocation: Allocation) -> str:
    if allocation.is_named_slice:
        return f"slice {slices.name_of(allocation)}"
    pod = allocation.pod
    if pod:
        return f"pod {pod.get('namespace')}/{pod.get('name')}, container {pod.get('container')}"
    return f"container {allocation.container_id}"


def _maps(pid: int, page: tuple[int, int]) -> bool:
    """As process.maps; one with too many mappings to check counts as outside of all slices."""
    try:
        return process.maps(pid, *page)
    except OSError as error:
        if error.errno == errno.EFBIG:
            return False
        raise
