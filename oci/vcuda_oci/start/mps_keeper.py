"""The MPS keeper: starts and watches a control daemon for each GPU with containers under MPS.

It is a child of the process with the claim socket, and runs while a container is under MPS. The
daemons do not end with it: the next keeper takes them over. ledger/mps_folder.py explains the
files.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

from ..guest import process as guest_process
from ..ledger import events, liveness, mps_folder
from ..ledger.ledger import Ledger
from ..ledger.mps_folder import Ready
from ..model.errors import VcudaError
from ..system import files

# Between two checks; a claim that waits for its daemon ends the pause by a signal.
_PERIOD_SECONDS = 0.2
_START_SECONDS = 5.0
_RETRY_SECONDS = 1.0
# A daemon that ends within _SHORT_SECONDS of its start is replaced after a pause that doubles: root
# in a container under it may end it again and again. The first time there is none.
_SHORT_SECONDS, _LONGEST_PAUSE_SECONDS = 60.0, 8.0
# The daemon is asked for a fault so often: each time by a process.
_ASK_SECONDS = 0.5
_MULTIUSER = "-multiuser-server"


class MpsKeeper:
    def __init__(self, state_dir: str) -> None:
        self._ledger = Ledger(state_dir)
        self._state_dir = state_dir
        self._due: dict[str, float] = {}
        self._began: dict[str, float] = {}  # when a folder's daemon was started
        self._pause: dict[str, float] = {}  # before the next daemon, if this one ends soon
        self._logged: dict[str, str] = {}
        self._asked: dict[str, float] = {}
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
            signal.sigtimedwait([signal.SIGCHLD], _PERIOD_SECONDS)
            _reap()

    def _complain(self, folder: str, what: str) -> None:
        """Write a line to the log, once while the fault is the same."""
        if self._logged.get(folder) != what:
            self._logged[folder] = what
            print(f"vcuda: MPS of {folder}: {what}", file=sys.stderr)

    def _check(self, folder: str) -> None:
        tree = mps_folder.wanted(folder)
        if tree is None or not mps_folder.is_wanted(self._ledger, folder):
            mps_folder.sweep(self._ledger)
            return
        now = mps_folder.ready(folder)
        if now:
            self._watch(folder, tree, now)
        elif time.monotonic() >= self._due.get(folder, 0):
            with mps_folder.lock(self._state_dir):
                if mps_folder.is_wanted(self._ledger, folder):  # nor has a sweep come first
                    self._replace(folder, tree)

    def _watch(self, folder: str, tree: dict[str, str], now: Ready) -> None:
        """Note the server's clients, and report a fault that ends the work of all of them."""
        if time.monotonic() - self._asked.get(folder, 0) < _ASK_SECONDS:
            return
        self._asked[folder] = time.monotonic()
        status = _ask(folder, tree, f"get_server_status {now.server[0]}")
        clients = _ask(folder, tree, f"get_client_list {now.server[0]}")
        is_faulty = "FAULT" in status
        if not is_faulty:
            self._faulty.discard(folder)
        elif folder not in self._faulty:
            self._faulty.add(folder)
            self._report(tree, "a fault of one container's program ended the work of all of them")
        mps_folder.write_seen(folder, len(re.findall(r"^\d+$", clients, re.M)), is_faulty)

    def _replace(self, folder: str, tree: dict[str, str]) -> None:
        has_ended = os.path.exists(folder + "/ready.json")
        if has_ended:
            self._report(tree, "its MPS daemon or server has ended, and with it its GPU work")
        mps_folder.end_all(folder)
        files.remove(folder + "/ready.json")
        files.remove(folder + "/seen.json")
        if has_ended and self._must_pause(folder):
            return
        for part in ("pipe", "log"):
            os.makedirs(f"{folder}/{part}", 0o700, exist_ok=True)
        daemon = _start_daemon(folder, tree)
        self._began[folder] = time.monotonic()
        server = _start_server(folder, tree, daemon)
        pids = [[pid, liveness.start_time(pid)] for pid in (daemon, server)]
        self._logged.pop(folder, None)
        mps_folder.write_ready(folder, Ready(pids[0], pids[1], mps_folder.shared_of(server)))

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


def _environment(folder: str, tree: dict[str, str]) -> dict[str, str]:
    places = {
        "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe",
        "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log",
        "CUDA_VISIBLE_DEVICES": tree["gpu"],
        "LD_LIBRARY_PATH": tree["library"],
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    }
    root = tree["program"].rpartition("/usr/bin/")[0]
    # The software GPU's programs find their state so; NVIDIA's do not know the variable.
    return {**places, **({"SOFTGPU_ROOT": root} if root else {})}


def _start_daemon(folder: str, tree: dict[str, str]) -> int:
    """Start the daemon; its pid. For clients of all users where the program knows how. Raises
    VcudaError: it ends at once."""
    for more in ([_MULTIUSER], []):
        daemon = subprocess.Popen(
            [tree["program"], "-f", *more],
            env=_environment(folder, tree),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_unblock,  # this process has one thread
        )
        until = time.monotonic() + _START_SECONDS
        while daemon.poll() is None and time.monotonic() < until:
            if os.path.exists(f"{folder}/pipe/nvidia-cuda-mps-control.pid"):
                return daemon.pid
            time.sleep(0.01)
    raise VcudaError("the MPS control daemon does not start", tree["program"], f"see {folder}/log")


def _ask(folder: str, tree: dict[str, str], word: str) -> str:
    return subprocess.run(
        [tree["program"]],
        env=_environment(folder, tree),
        input=word + "\n",
        stdout=subprocess.PIPE,
        timeout=_START_SECONDS,
        text=True,
        check=False,
    ).stdout


def _start_server(folder: str, tree: dict[str, str], daemon: int) -> int:
    """Start a server before its first client needs it; its pid. daemon: pid. Raises VcudaError."""
    _ask(folder, tree, f"start_server -uid {os.geteuid()}")
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and liveness.start_time(daemon):
        found = re.findall(r"^\d+$", _ask(folder, tree, "get_server_list"), re.MULTILINE)
        if found:
            return int(found[0])
        time.sleep(0.01)
    raise VcudaError("the MPS server does not start", folder, f"see {folder}/log")


def _unblock() -> None:
    """Unblock SIGCHLD in the daemon, which inherits the mask: it must notice its server's end."""
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main(state_dir: str, parent: int) -> None:
    guest_process.set_own_name("mps_keeper")
    MpsKeeper(state_dir).run(parent)
