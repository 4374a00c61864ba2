"""Restart kube-scheduler in the extender's pod after the API server was away.

kube-scheduler's informers try again after pauses that double up to 30 s and more: after an API
server's minute away it bound its first pod 66 s after the return (seen with 1.36). A new process
lists at once, and the kubelet starts it at once. Both containers run under one user in one process
namespace (shareProcessNamespace).
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import kernel_tables

from ...kube.api import ApiError

# A shorter outage costs kube-scheduler no longer pause than its restart.
LEAST_SECONDS = 5.0
_ASK_SECONDS = 1.0

_log = logging.getLogger(__name__)


class Outage:
    """ask: asks the API server for anything; raises ApiError or VcudaError. ended: called after an
    outage."""

    def __init__(self, ask: Callable[[], object], ended: Callable[[], object]) -> None:
        self._ask, self._ended = ask, ended
        self._failed = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="outage", daemon=True).start()

    def began(self) -> None:
        """Note that the API server did not answer; call it as often as that happens."""
        self._failed.set()

    def _run(self) -> None:
        while True:
            self._failed.wait()
            self.follow(time.monotonic, time.sleep)
            self._failed.clear()

    def follow(self, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """Wait for the end of an outage that has begun just now."""
        began = clock()
        while True:
            sleep(_ASK_SECONDS)
            try:
                self._ask()
            except (ApiError, VcudaError):
                continue
            if clock() - began >= LEAST_SECONDS:
                self._ended()
            return


def end_processes(name: str, proc: str = "/proc") -> list[int]:
    """Ask every process of this name and of this process's user to end; return their pids."""
    found = []
    for pid in filter(str.isdigit, os.listdir(proc)):
        folder = f"{proc}/{pid}"
        try:
            if kernel_tables.command(folder) == name and os.stat(folder).st_uid == os.geteuid():
                found.append(int(pid))
        except OSError:
            continue  # it has ended
    for number in found:
        try:
            os.kill(number, signal.SIGTERM)
        except OSError as error:
            _log.warning("process %d, %s: cannot be ended: %s", number, name, error.strerror)
    _log.info("the API server was away: %s starts again, %d processes", name, len(found))
    return found
