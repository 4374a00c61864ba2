"""What each workload of the node needs of its GPUs, from the samples of the history.

It is saved every minute and at the end, whole and by rename, so that a kill costs the samples of a
minute. A reboot clears the state folder and begins anew.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from vcuda_hook.advice import demands, recommend, workload
from vcuda_hook.advice.demand import Demand, Sample
from vcuda_hook.advice.recommend import Advice
from vcuda_hook.advice.workload import Workload
from vcuda_hook.live import views, workloads
from vcuda_oci.system import files

from .node_state import View

SAVE_SECONDS = 60.0

_log = logging.getLogger(__name__)


class WorkloadDemands:
    """demands: by workload, those of earlier runs too, at most demands.MOST_WORKLOADS."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir, self._path = state_dir, f"{state_dir}/{demands.FILE}"
        self.demands = self._load()
        self._owners: dict[str, str] = {}  # of a pod, by its UID
        self._refusals: dict[tuple[str, str], int] = {}  # last total, by allocation and GPU
        self._saved, self._saving = time.monotonic(), threading.Lock()
        self._running: frozenset[Workload] = frozenset()
        self._advised: list[tuple[Workload, Advice]] | None = None

    async def add(self, view: View) -> None:
        """Add a sample of each container; save when the last time is SAVE_SECONDS ago."""
        self._note(view)
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._saved = time.monotonic()
            await asyncio.to_thread(self.save)

    def save(self) -> None:
        try:
            with self._saving:
                files.replace(self._path, demands.dump(self.demands), 0o644)
        except OSError as error:
            _log.warning("%s: cannot be written: %s", self._path, error.strerror)

    def recommended(self) -> list[tuple[Workload, Advice]]:
        """The advice for each workload with a container here, as of the last sample."""
        if self._advised is None:
            self._advised = [
                (each, recommend.recommend(self.demands[each])) for each in sorted(self._running)
            ]
        return self._advised

    def _note(self, view: View) -> None:
        refusals, running = {}, set()
        uids = {entry["pod"].get("uid") for entry in view.tenants if entry["pod"]}
        self._owners = {uid: owner for uid, owner in self._owners.items() if uid in uids}
        for entry in view.tenants:
            if not _is_of_workload(entry):
                continue
            key = entry["id"], entry["gpu_uuid"]
            refusals[key] = entry["refusals"]
            pod = entry["pod"]
            owner = self._owner(str(pod.get("uid", ""))) if pod else ""
            its = workload.of(pod, owner, entry["name"], entry["image"] or "")
            running.add(its)
            if its not in self.demands:
                demands.make_room(self.demands)
                self.demands[its] = Demand()
            self.demands[its].add(_sample(entry, self._refusals.get(key)), view.taken)
        running &= self.demands.keys()
        self._refusals, self._running, self._advised = refusals, frozenset(running), None

    def _owner(self, uid: str) -> str:
        """The owner in the pod's decision file; "": it has none, or there is no such file yet."""
        if uid not in self._owners:
            owner = workloads.owner_of(self._state_dir, uid)
            if owner is None:
                return ""
            self._owners[uid] = owner
        return self._owners[uid]

    def _load(self) -> dict[Workload, Demand]:
        try:
            return demands.parse(files.read_ours(self._path, demands.MOST_BYTES))
        except (OSError, ValueError):
            return {}  # missing or damaged: begin anew


def _is_of_workload(entry: Mapping[str, Any]) -> bool:
    """Whether there are figures, and a name under which the workload comes back: a named slice has
    no container of its own, and an engine's id is never used again.
    """
    is_nameless = not entry["pod"] and entry["name"] == views.short_id(entry["id"]) != entry["id"]
    return entry["usage"] == views.READ and bool(entry["container_id"]) and not is_nameless


def _sample(entry: Mapping[str, Any], refused_before: int | None) -> Sample:
    """refused_before: total of the sample before; None: this is the container's first.

    A restarted container counts from 0.
    """
    refused = entry["refusals"]
    before = refused if refused_before is None else refused_before
    suspension = entry["suspension"]
    is_off = suspension is not None and entry["memory_used_bytes"] == 0
    return Sample(
        entry["memory_bytes"],
        entry["core_percent"],
        suspension["bytes"] if is_off else entry["memory_used_bytes"],
        entry["core_used_percent"],
        entry["waited_percent"],
        refused - before if refused >= before else refused,
    )
