"""Wait for the end of processes by pidfd, without polling."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import NamedTuple

from vcuda_oci.ledger import liveness


class FirstProcess(NamedTuple):
    """The first process of a container. start_time: clock ticks since boot; it distinguishes
    processes of one pid."""

    pid: int
    start_time: int


class ProcessEnds:
    """Collects the ends of the processes that it follows."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._followed: dict[FirstProcess, int] = {}
        self._one_ended = asyncio.Event()

    def follow(self, wanted: Mapping[FirstProcess, str]) -> None:
        """Follow exactly these processes, each with the caller's name for it.

        A process that has already ended is not reported.
        """
        for process in self._followed.keys() - wanted.keys():
            self._forget(process)
        for process in wanted.keys() - self._followed.keys():
            try:
                pidfd = os.pidfd_open(process.pid)
            except OSError:
                continue  # it has ended, or no descriptor is free: the next sweep finds it
            if liveness.start_time(process.pid) != process.start_time:
                os.close(pidfd)
                continue
            self._followed[process] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._end, process, wanted[process])

    def take(self) -> set[str]:
        """Return the names of the processes that have ended since the last call."""
        ended, self._ended = self._ended, set()
        return ended

    async def wait(self, seconds: float) -> bool:
        """Wait until a process ends or the time is over; return whether one ended."""
        try:
            await asyncio.wait_for(self._one_ended.wait(), seconds)
        except asyncio.TimeoutError:
            return False
        self._one_ended.clear()
        return True

    def _end(self, process: FirstProcess, name: str) -> None:
        self._forget(process)
        self._ended.add(name)
        self._one_ended.set()

    def _forget(self, process: FirstProcess) -> None:
        pidfd = self._followed.pop(process)
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
