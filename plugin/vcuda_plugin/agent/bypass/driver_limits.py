"""The limits that the driver itself holds, by cgroup, where it can: from driver 615 on, cgroup v2.

They hold a program that goes round the shim too. They count what the driver takes for contexts and
code, which the shim counts only where `context-memory` says so: then there is room for one process
more than there are, so that the shim's limit is met first.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .process_probe import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .detection import Share

# What one refusal may pass by until it is asked again, in looks.
_PATIENCE = 30


def hard_bytes(share: Share, processes: int, gpu_bytes: int) -> int:
    """The driver's limit of a share that so many processes use; NO_LIMIT: the GPU is the limit."""
    hard = share.memory_bytes if share.context_bytes else share.most_bytes(processes + 1)
    return hard if hard < gpu_bytes and not share.is_whole else NO_LIMIT


class DriverLimits:
    """Those that were set. set_limit: as process_probe.ProcessProbe's."""

    def __init__(self, set_limit: Callable[[str, str, int], str]) -> None:
        self._set_limit = set_limit
        self._are: dict[tuple[str, str], int] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._told = ""

    def hold(self, wanted: Mapping[tuple[str, str], int]) -> str:
        """Set what differs. wanted: bytes by the cgroup's folder and the GPU's UUID.

        Returns a line for the log once where the driver refuses; "": there is nothing to tell.
        """
        reason = ""
        for place, hard in wanted.items():
            if self._are.get(place) != hard:
                reason = self._set(place, hard) or reason
        for place in [place for place in self._are if place not in wanted]:
            # With its cgroup a limit goes by itself.
            if os.path.isdir(place[0]):
                self._set_limit(place[1], place[0], NO_LIMIT)
            del self._are[place]
        for place in [place for place in self._refused if place not in wanted]:
            del self._refused[place]
        if not reason or reason == self._told:
            return ""
        self._told = reason
        return f"the driver holds no limits itself: {reason}"

    def _set(self, place: tuple[str, str], hard: int) -> str:
        folder, uuid = place
        if self._refused.get(place, 0) > 0:
            self._refused[place] -= 1
            return ""
        reason = self._set_limit(uuid, folder, hard)
        if not reason:
            self._are[place] = hard
            self._refused.pop(place, None)
        elif os.path.isdir(folder):
            self._refused[place] = _PATIENCE
        else:
            reason = ""  # its container has just ended
        return reason
