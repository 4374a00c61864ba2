"""The watch from outside: polls NVML, reports and stops containers that exceed their shares.

It runs as its own process, because a call of NVML can hang for as long as the GPU does. After each
poll it prints one line, a JSON list of lines for the agent's log.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import defaultdict

from vcuda_hook.live import driver_figures
from vcuda_hook.live.driver_figures import Figures
from vcuda_oci.fences import mps_folder
from vcuda_oci.host import host
from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import kernel_tables
from vcuda_oci.system.settings_file import Config

from . import container_stop, detection, guest_slots, turn_audit
from .driver_limits import DriverLimits, hard_bytes
from .held_containers import Held, HeldContainers
from .hidden_work import Hidden
from .process_probe import OnGpu, ProcessProbe
from .turn_audit import TurnAudit

PERIOD_SECONDS = 2.0
# Polls may use this part of a core. With many processes they become rarer, but never more so than
# one each LONGEST_SECONDS.
_CPU_PART = 0.005
LONGEST_SECONDS = 10.0
# The shortest time between two reports of processes outside containers, for each GPU.
_OUTSIDERS_SECONDS = 60.0


def main(settings: Config) -> None:
    """Poll until the agent has ended or the driver has changed."""
    try:
        cache = settings.state_dir + "/host.json"
        facts = host.load(settings.driver_root, cache)
        watch = OutsideWatch(facts, facts.library, settings)
        began = time.process_time()
        while facts.has_these_gpus(cache):
            print(json.dumps(watch.poll()), flush=True)
            due = (time.process_time() - began) / _CPU_PART
            pause = min(max(PERIOD_SECONDS, due), LONGEST_SECONDS)
            # A program with the same period must not always be sampled at its best moment.
            pause *= random.uniform(0.75, 1.25)  # noqa: S311
            time.sleep(max(0.0, pause - turn_audit.SECOND))
            began = time.process_time()
            watch.begin_second()
            time.sleep(turn_audit.SECOND)
    except VcudaError:
        time.sleep(LONGEST_SECONDS)  # gpu_probe.py gets the same error and reports it
    except BrokenPipeError:
        os._exit(0)  # the agent has ended


class OutsideWatch:
    def __init__(self, facts: host.Host, library: str, settings: Config) -> None:
        self._gpu_bytes = {gpu.uuid: gpu.memory_bytes for gpu in facts.gpus if not gpu.divided}
        # The driver limits cgroups on whole GPUs only.
        self._limited = {gpu.uuid for gpu in facts.gpus if not gpu.divided and gpu.mig is None}
        self._settings, self._state_dir = settings, settings.state_dir
        self._probe = ProcessProbe(library, list(self._gpu_bytes))
        self._containers = HeldContainers(self._state_dir)
        self._watch = detection.Watch()
        self._audit = TurnAudit(self._state_dir)
        self._limits = DriverLimits(self._probe.set_limit, self._probe.count)
        self._has_figures = False  # of the driver
        # By GPU UUID: when processes outside containers were last reported, and their pids.
        self._outsiders: dict[str, tuple[float, frozenset[int]]] = {}

    def poll(self) -> list[str]:
        """Sample all GPUs once; return lines for the log. Each new finding is also an event."""
        processes = self._probe.poll()
        all_held = self._containers.follow()
        holders = {}
        for key, held in all_held.items():
            # A page may be released or being written: the next poll reads it.
            with contextlib.suppress(OSError, ValueError):
                holders[key] = held.holder()
        seen, outsiders = self._sort(processes, holders)
        lines = self._report_outsiders(outsiders, holders)
        driver: Figures = {}
        if self._settings.driver_limits:
            more, driver = self._set_limits(all_held, holders, seen)
            lines += more
        percents = {(one.pid, one.uuid): one.busy_percent for one in processes}
        # NVML counts the work of processes that work at once for each of them.
        used = {
            (key, uuid): max(percents[one.pid, uuid] for one in those) / 100
            for (key, uuid), those in seen.items()
        }
        totals = _totals(used, outsiders)
        parts = {place: part / max(1.0, totals[place[1]]) for place, part in used.items()}
        hidden = self._find_hidden_work(all_held, used, totals)
        for finding in self._watch.update(time.monotonic(), holders, seen, parts, hidden, driver):
            held = all_held[finding.key]
            stops = self._settings.stop_bypass and _may_stop(held, finding)
            if finding.is_new:
                self._record(held, finding, stops)
            killed = container_stop.stop(held, finding.pids, self._containers.of) if stops else 0
            if finding.is_new:
                what = f"; {killed} processes killed" if stops else ""
                lines.append(f"{held.allocation.id}: {finding.text}{what}")
        return lines

    def begin_second(self) -> None:
        """Call this a second before each poll."""
        self._audit.begin()

    def _sort(
        self, processes: list[OnGpu], holders: dict[str, detection.Holder]
    ) -> tuple[dict[tuple[str, str], list[detection.Process]], list[OnGpu]]:
        """Return the processes of holders, by holder's key and GPU, and all other processes."""
        seen: dict[tuple[str, str], list[detection.Process]] = {}
        slots: dict[str, frozenset[tuple[int, int]] | None] = {}
        outsiders = []
        for process in processes:
            try:
                held = self._containers.of(process.pid)
                command = kernel_tables.command(f"/proc/{process.pid}")
            except OSError:
                continue  # it has ended
            if held is None:
                outsiders.append(process)
            elif held.key in holders:
                if held.key not in slots:
                    slots[held.key] = _slots(held)
                has_shim = _has_shim(process, slots[held.key])
                one = detection.Process(
                    process.pid,
                    command,
                    process.memory_bytes or 0,
                    has_shim,
                )
                seen.setdefault((held.key, process.uuid), []).append(one)
        return seen, outsiders

    def _find_hidden_work(
        self,
        all_held: dict[str, Held],
        used: dict[tuple[str, str], float],
        totals: dict[str, float],
    ) -> dict[tuple[str, str], Hidden]:
        """Return work beside turns, by holder's key and GPU; the keeper charges it."""
        ids = {(key, uuid): (all_held[key].allocation.id, uuid) for key, uuid in used}
        allocations = [held.allocation for held in all_held.values()]
        by_id = {ids[place]: part for place, part in used.items()}
        found = self._audit.end(allocations, by_id, totals)
        return {place: found[id] for place, id in ids.items() if id in found}

    def _record(self, held: Held, finding: detection.Finding, stops: bool) -> None:
        """Record the finding as an event. stops: whether the container is stopped next."""
        allocation = held.allocation
        events.record(
            self._state_dir,
            names.AGENT_PROGRAM,
            events.BYPASS_FOUND,
            allocation.id,
            finding.text,
            **events.about(allocation.container_id, allocation.pod),
            why=finding.why,
            gpu=finding.uuid,
            used=finding.used,
            limit=finding.limit,
            pids=list(finding.pids),
            stops=stops,
        )

    def _report_outsiders(
        self, outsiders: list[OnGpu], holders: dict[str, detection.Holder]
    ) -> list[str]:
        """Return lines about processes without a share on shared GPUs; these are never stopped."""
        shared = {uuid for holder in holders.values() for uuid in holder.shares}
        # An MPS server stands for the containers under it.
        servers = mps_folder.servers(self._state_dir)
        outsiders = [process for process in outsiders if process.pid not in servers]
        now, lines = time.monotonic(), []
        for uuid in sorted({process.uuid for process in outsiders} & shared):
            pids = {process.pid for process in outsiders if process.uuid == uuid}
            since, known = self._outsiders.get(uuid, (-_OUTSIDERS_SECONDS, frozenset()))
            if now - since < _OUTSIDERS_SECONDS or pids <= known:
                continue
            self._outsiders[uuid] = now, frozenset(pids)
            some = ", ".join(map(str, sorted(pids)[:5]))
            lines.append(f"{uuid} is shared, and processes without a share use it: {some}")
        return lines

    def _set_limits(
        self,
        all_held: dict[str, Held],
        holders: dict[str, detection.Holder],
        seen: dict[tuple[str, str], list[detection.Process]],
    ) -> tuple[list[str], Figures]:
        """Set the driver's limit for each container that has its own cgroup.

        Returns log lines, and the driver's figures by holder's key and GPU; `vcuda ps` reads them
        by allocation.
        """
        folders = {held.folder: held for key, held in all_held.items() if key in holders}
        wanted = {
            (folder, uuid): hard_bytes(
                share, len(seen.get((held.key, uuid), ())), self._gpu_bytes.get(uuid, 0)
            )
            for folder, held in folders.items()
            if folder
            for uuid, share in holders[held.key].shares.items()
            if uuid in self._limited
        }
        line = self._limits.hold(wanted)
        counted = self._limits.counted()
        if counted or self._has_figures:
            by_id = {(folders[f].allocation.id, uuid): one for (f, uuid), one in counted.items()}
            with contextlib.suppress(OSError):  # no space: readers ignore old figures
                driver_figures.write(self._state_dir, by_id)
        self._has_figures = bool(counted)
        by_key = {(folders[f].key, uuid): one for (f, uuid), one in counted.items()}
        return [line] if line else [], by_key


def _totals(used: dict[tuple[str, str], float], outsiders: list[OnGpu]) -> defaultdict[str, float]:
    """Return what all holders and all other processes use of each GPU."""
    totals: defaultdict[str, float] = defaultdict(float)
    for (_, uuid), part in used.items():
        totals[uuid] += part
    for process in outsiders:
        totals[process.uuid] += process.busy_percent / 100
    return totals


def _may_stop(held: Held, finding: detection.Finding) -> bool:
    """Whether to stop the container; never for a named slice, which several containers may use."""
    return finding.why not in detection.REPORTED_ONLY and not held.allocation.is_named_slice


def _slots(held: Held) -> frozenset[tuple[int, int]] | None:
    try:
        return guest_slots.read(held.folder_of_pages)
    except OSError:
        return None


def _has_shim(process: OnGpu, slots: frozenset[tuple[int, int]] | None) -> bool:
    """Whether a process uses the shim.

    True also if that cannot be found out, and for a process that only draws: the shim is for CUDA.
    """
    if slots is None or not process.computes:
        return True
    inside = guest_slots.inside(process.pid)
    return inside is None or guest_slots.knows(slots, inside)
