"""Tells when processes end, by pidfd: nothing is asked again and again."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from vcuda_oci import liveness

if TYPE_CHECKING:
    from collections.abc import Mapping


class FirstProcess(NamedTuple):
    """start_time: clock ticks since boot, so that no other with this pid is meant."""

    pid: int
    start_time: int


class ProcessEnds:
    """Of the processes that are followed."""

    def __init__(self) -> None:
        self._ended: set[str] = set()
        self._followed: dict[FirstProcess, int] = {}
        self._one_ended = asyncio.Event()

    def follow(self, wanted: Mapping[FirstProcess, str]) -> None:
        """These from now on, and no others. One that has ended before is not told of."""
        for process in self._followed.keys() - wanted.keys():
            self._forget(process)
        for process in wanted.keys() - self._followed.keys():
            try:
                pidfd = os.pidfd_open(process.pid)
            except OSError:
                continue  # it has ended, or no descriptor is free: the next sweep sees
            if liveness.start_time(process.pid) != process.start_time:
                os.close(pidfd)
                continue
            self._followed[process] = pidfd
            loop = asyncio.get_running_loop()
            loop.add_reader(pidfd, self._end, process, wanted[process])

    def take(self) -> set[str]:
        """What the caller knows the processes by that have ended since this was last asked."""
        ended, self._ended = self._ended, set()
        return ended

    async def wait(self, seconds: float) -> bool:
        """Until one ends, or the time is over; whether one ended."""
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
