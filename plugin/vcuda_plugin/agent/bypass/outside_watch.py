"""The watch from outside: a process of its own, since NVML can hang for as long as a GPU pleases.

Each look it says a line, a JSON list of lines for the log.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from vcuda_oci import events, host, names
from vcuda_oci.config import AUTO, STOP
from vcuda_oci.errors import VcudaError
from vcuda_oci.guest import kernel_tables

from . import container_stop, detection, guest_slots
from .driver_limits import DriverLimits, hard_bytes
from .held_containers import HeldContainers
from .process_probe import ProcessProbe

if TYPE_CHECKING:
    from .held_containers import Held
    from .process_probe import OnGpu

PERIOD_SECONDS = 2.0
# With many processes looks are let take five thousandths of a core, down to this pace.
LONGEST_SECONDS = 10.0
_LOOKS_PART = 0.005
_STRANGERS_SECONDS = 60.0


def main(driver_root: str, state_dir: str, policy: str, driver_limits: str) -> None:
    """Until nobody reads, or NVML has to be opened anew. The last two as the settings say them."""
    try:
        facts = host.load(driver_root, state_dir + "/host.json")
        library = facts.libraries.get("libnvidia-ml.so.1", "")
        watch, key = OutsideWatch(facts, library, state_dir), host.gpus_key(facts.root, library)
        watch.stops, watch.sets_limits = policy == STOP, driver_limits == AUTO
        while host.gpus_key(facts.root, library) == key:
            began = time.process_time()
            sys.stdout.write(json.dumps(watch.look()) + "\n")
            sys.stdout.flush()
            due = (time.process_time() - began) / _LOOKS_PART
            time.sleep(min(max(PERIOD_SECONDS, due), LONGEST_SECONDS))
    except VcudaError:
        time.sleep(LONGEST_SECONDS)  # gpu_probe.py meets the same, and says so
    except BrokenPipeError:
        os._exit(0)  # nobody to tell


class OutsideWatch:
    """stops: whether who is found is stopped. sets_limits: whether the driver is told limits."""

    stops = sets_limits = False

    def __init__(self, facts: host.Host, library: str, state_dir: str) -> None:
        self._gpu_bytes = {gpu.uuid: gpu.memory_bytes for gpu in facts.gpus if not gpu.divided}
        self._state_dir = state_dir
        self._probe = ProcessProbe(library, list(self._gpu_bytes))
        self._containers = HeldContainers(state_dir)
        self._watch = detection.Watch()
        self._limits = DriverLimits(self._probe.set_limit)
        self._strangers: dict[str, tuple[float, frozenset[int]]] = {}  # when told, and of whom

    def look(self) -> list[str]:
        """Lines for the log; each finding that is new is an event too."""
        processes = self._probe.look()
        all_held = self._containers.follow()
        holders = {}
        for key, held in all_held.items():
            try:
                holders[key] = held.holder()
            except (OSError, ValueError):
                continue  # released, or not whole: the next look sees
        seen, strangers = self._sort(processes, holders)
        told = self._tell_strangers(strangers, holders)
        if self.sets_limits:
            told += self._hold(all_held, holders, seen)
        for finding in self._watch.look(time.monotonic(), holders, seen):
            held = all_held[finding.key]
            stops = self.stops and _may_stop(held, finding)
            if finding.is_new:
                self._record(held, finding, stops)
            killed = container_stop.stop(held, finding.pids, self._containers.of) if stops else 0
            if finding.is_new:
                what = f"; {killed} processes killed" if stops else ""
                told.append(f"{held.allocation.id}: {finding.text}{what}")
        return told

    def _sort(
        self, processes: list[OnGpu], holders: dict[str, detection.Holder]
    ) -> tuple[dict[tuple[str, str], list[detection.Process]], list[OnGpu]]:
        """Processes by holder and GPU, and those of nobody who holds a share."""
        seen: dict[tuple[str, str], list[detection.Process]] = {}
        slots: dict[str, frozenset[tuple[int, int]] | None] = {}
        strangers = []
        for process in processes:
            try:
                held = self._containers.of(process.pid)
                command = kernel_tables.command(f"/proc/{process.pid}")
            except OSError:
                continue  # it has ended
            if held is None:
                strangers.append(process)
            elif held.key in holders:
                if held.key not in slots:
                    slots[held.key] = _slots(held)
                has_shim = _has_shim(process, slots[held.key])
                one = detection.Process(
                    *(process.pid, command, process.memory_bytes or 0),
                    *(process.busy_percent, has_shim),
                )
                seen.setdefault((held.key, process.uuid), []).append(one)
        return seen, strangers

    def _record(self, held: Held, finding: detection.Finding, stops: bool) -> None:
        """stops: whether the container will be stopped. Told first: it may be the last word."""
        allocation = held.allocation
        events.record(
            *(self._state_dir, names.AGENT_PROGRAM, events.BYPASS_FOUND),
            *(allocation.id, finding.text),
            **events.about(allocation.container_id, allocation.pod),
            why=finding.why,
            gpu=finding.uuid,
            used=finding.used,
            limit=finding.limit,
            pids=list(finding.pids),
            stops=stops,
        )

    def _tell_strangers(
        self, strangers: list[OnGpu], holders: dict[str, detection.Holder]
    ) -> list[str]:
        """Who uses a GPU that is shared, and is of no container that holds a share: only told."""
        shared = {uuid for holder in holders.values() for uuid in holder.shares}
        now, told = time.monotonic(), []
        for uuid in sorted({process.uuid for process in strangers} & shared):
            pids = {process.pid for process in strangers if process.uuid == uuid}
            since, known = self._strangers.get(uuid, (-_STRANGERS_SECONDS, frozenset()))
            if now - since < _STRANGERS_SECONDS or pids <= known:
                continue
            self._strangers[uuid] = now, frozenset(pids)
            who = ", ".join(map(str, sorted(pids)[:5]))
            told.append(f"{uuid} is shared, and used by who holds no share: processes {who}")
        return told

    def _hold(
        self,
        all_held: dict[str, Held],
        holders: dict[str, detection.Holder],
        seen: dict[tuple[str, str], list[detection.Process]],
    ) -> list[str]:
        """Have the driver hold each container that has a cgroup of its own."""
        wanted = {
            (held.folder, uuid): hard_bytes(
                share, len(seen.get((key, uuid), ())), self._gpu_bytes.get(uuid, 0)
            )
            for key, held in all_held.items()
            if held.folder and key in holders
            for uuid, share in holders[key].shares.items()
        }
        line = self._limits.hold(wanted)
        return [line] if line else []


def _may_stop(held: Held, finding: detection.Finding) -> bool:
    """A named slice has no container of its own: several share it, and who overstepped is told."""
    return finding.why not in detection.REPORTED_ONLY and not held.allocation.is_named_slice


def _slots(held: Held) -> frozenset[tuple[int, int]] | None:
    try:
        return guest_slots.read(held.folder_of_pages)
    except OSError:
        return None


def _has_shim(process: OnGpu, slots: frozenset[tuple[int, int]] | None) -> bool:
    """Also of one that only draws: the shim is libcuda's; and where nothing can be said."""
    if slots is None or not process.computes:
        return True
    inside = guest_slots.inside(process.pid)
    return inside is None or guest_slots.knows(slots, inside)
