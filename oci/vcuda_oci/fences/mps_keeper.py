"""The MPS keeper: starts and watches a control daemon for each GPU with containers under MPS.

It is a child of the process with the claim socket, and runs while a container is under MPS. The
daemons do not end with it: the next keeper takes them over. fences/mps_folder.py explains the
files.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

from ..ledger import events
from ..ledger.ledger import Ledger
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..system import files
from . import mps_control, mps_folder, mps_partitions, mps_spaces
from .mps_folder import Ready

# Between two checks. A claim that waits cuts the pause short: it signals the process with the claim
# socket, which signals the keeper.
_PERIOD_SECONDS = 0.2
_RETRY_SECONDS = 1.0
# A daemon that ends within _SHORT_SECONDS of its start is replaced after a pause that doubles: root
# in a container under it may end it again and again. There is no pause the first time.
_SHORT_SECONDS, _LONGEST_PAUSE_SECONDS = 60.0, 8.0
# Between two questions for clients and a fault: each starts a process. A daemon that hangs is asked
# again later, because the daemons of other GPUs wait meanwhile.
_ASK_SECONDS, _ASK_AGAIN_SECONDS = 0.5, 30.0


class MpsKeeper:
    def __init__(self, state_dir: str) -> None:
        self._ledger = Ledger(state_dir)
        self._state_dir = state_dir
        self._due: dict[str, float] = {}
        self._began: dict[str, float] = {}  # when a folder's daemon was started
        self._pause: dict[str, float] = {}  # before the next daemon, if this one ends soon
        self._logged: dict[str, str] = {}
        self._ask_due: dict[str, float] = {}
        self._in_step: set[str] = set()  # folders of which this process has listed the namespaces
        self._faulty: set[str] = set()  # folders with a fault that was reported

    def run(self, parent: int) -> None:
        """Keep daemons until no container is under MPS, or `parent`, the parent process, ends."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        while os.getppid() == parent and mps_folder.folders(self._state_dir):
            for folder in mps_folder.folders(self._state_dir):
                try:
                    self._check(folder)
                except (OSError, VcudaError, subprocess.SubprocessError) as error:
                    self._due[folder] = time.monotonic() + _RETRY_SECONDS
                    self._complain(folder, f"{error}")
                    if not mps_folder.ready(folder):
                        self._note_failure(folder, f"{error}")
            signal.sigtimedwait([signal.SIGCHLD], _PERIOD_SECONDS)
            _reap()

    def _complain(self, folder: str, what: str) -> None:
        """Write a line to the log, once while the fault is the same."""
        if self._logged.get(folder) != what:
            self._logged[folder] = what
            print(f"vcuda: MPS of {folder}: {what}", file=sys.stderr)

    def _note_failure(self, folder: str, what: str) -> None:
        """For the claims that wait."""
        try:
            mps_folder.note_failure(folder, what)
        except OSError:
            pass  # the folder was removed, or there is no room

    def _check(self, folder: str) -> None:
        tree, held = self._wanted(folder)
        if tree is None or not held:
            mps_spaces.sweep(self._ledger)
            return
        now = mps_folder.ready(folder)
        is_due = time.monotonic() >= self._due.get(folder, 0)
        if now and now.layout != held[0].partitions:  # it has outlived the containers before these
            earlier, now = now.daemon, None
            if is_due:
                with mps_folder.lock(self._state_dir):
                    found = mps_folder.ready(folder)
                    if found and found.daemon == earlier:
                        self._end(folder)
        if now:
            is_in_step = folder in self._in_step and mps_spaces.is_in_step(now, held)
            if is_due and not is_in_step:
                with mps_folder.lock(self._state_dir):
                    self._follow(folder)
            self._watch(folder, tree, now)
        elif is_due:
            with mps_folder.lock(self._state_dir):
                # A sweep may have come first, or a keeper that has outlived its parent process.
                tree, held = self._wanted(folder)
                if tree and held and not mps_folder.ready(folder):
                    self._replace(folder, tree, held[0].partitions)

    def _wanted(self, folder: str) -> tuple[dict[str, str] | None, list[Allocation]]:
        """Which daemon the folder needs, and for which containers."""
        tree = mps_folder.wanted(folder)
        return tree, mps_folder.containers(self._ledger, tree["gpu"]) if tree else []

    def _end(self, folder: str) -> None:
        mps_folder.end_all(folder)
        files.remove(folder + "/ready.json")
        files.remove(folder + "/seen.json")

    def _follow(self, folder: str) -> None:
        self._in_step.discard(folder)  # if it fails
        mps_spaces.follow(self._ledger, folder)
        self._in_step.add(folder)

    def _watch(self, folder: str, tree: dict[str, str], now: Ready) -> None:
        """Note the server's clients, and report a fault that ends the work of all of them."""
        if time.monotonic() < self._ask_due.get(folder, 0):
            return
        self._ask_due[folder] = time.monotonic() + _ASK_AGAIN_SECONDS  # if there is no answer
        clients, is_faulty = mps_control.clients(folder, tree, now)
        self._ask_due[folder] = time.monotonic() + _ASK_SECONDS
        if not is_faulty:
            self._faulty.discard(folder)
        elif folder not in self._faulty:
            self._faulty.add(folder)
            self._report(tree, "a fault of one container's program ended the work of all of them")
        mps_folder.write_seen(folder, clients, is_faulty)

    def _replace(self, folder: str, tree: dict[str, str], layout: list[int]) -> None:
        """layout: of the static partitions, which all its containers have alike."""
        has_ended = os.path.exists(folder + "/ready.json")
        if has_ended:
            self._report(tree, "its MPS daemon or server has ended, and with it its GPU work")
        self._end(folder)
        if has_ended and self._must_pause(folder):
            return
        shutil.rmtree(f"{folder}/pipe", ignore_errors=True)
        for part in ("pipe", "log"):
            os.makedirs(f"{folder}/{part}", 0o700, exist_ok=True)
        self._began[folder] = time.monotonic()
        found = mps_control.start(folder, tree, bool(layout))
        if layout:
            found = mps_partitions.make(folder, tree, found, layout)
        mps_folder.note_failure(folder, "")
        self._logged.pop(folder, None)
        mps_folder.write_ready(folder, found)
        self._follow(folder)

    def _must_pause(self, folder: str) -> bool:
        """Whether the next daemon comes later, because the last one has ended too soon."""
        now = time.monotonic()
        is_short = now - self._began.get(folder, -_SHORT_SECONDS) < _SHORT_SECONDS
        pause = self._pause.get(folder, 0.0) if is_short else 0.0
        self._due[folder] = now + pause
        self._pause[folder] = min(2 * pause or 1.0, _LONGEST_PAUSE_SECONDS)
        return pause > 0

    def _report(self, tree: dict[str, str], what: str) -> None:
        for container in mps_folder.containers(self._ledger, tree["gpu"]):
            self._ledger.record_event(events.MPS_ENDED, container, f"{tree['gpu']}: {what}")


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
