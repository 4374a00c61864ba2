"""Memory limits that the driver enforces by cgroup: driver 615 and later, cgroup v2.

They also limit a program that goes round the shim. The driver counts contexts and code; the shim
counts them only with the setting `context-memory`. Without it, the driver's limit leaves room for
one more process than there are, so that a program reaches the shim's limit first.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from vcuda_hook.live.driver_figures import Counted

from .detection import Share
from .process_probe import NO_LIMIT

# Polls to wait after a refusal before the driver is asked again.
_RETRY_POLLS = 30


def hard_bytes(share: Share, processes: int, gpu_bytes: int) -> int:
    """Return the driver's limit for a share in bytes; NO_LIMIT if the GPU is no larger."""
    hard = share.memory_bytes if share.context_bytes else share.most_bytes(processes + 1)
    return hard if hard < gpu_bytes and not share.is_whole else NO_LIMIT


class DriverLimits:
    """The limits that are set in the driver. set_limit, count: as ProcessProbe has them."""

    def __init__(
        self,
        set_limit: Callable[[str, str, int], str],
        count: Callable[[str, str], int | None],
    ) -> None:
        self._set_limit, self._count = set_limit, count
        self._current: dict[tuple[str, str], int] = {}
        self._refused: dict[tuple[str, str], int] = {}
        self._reported = ""

    def hold(self, wanted: Mapping[tuple[str, str], int]) -> str:
        """Set each limit that has changed. wanted: bytes by cgroup folder and GPU UUID.

        Returns a line for the log when the driver first refuses for a reason, else "".
        """
        reason = ""
        for place, hard in wanted.items():
            if self._current.get(place) != hard:
                reason = self._set(place, hard) or reason
        for place in [place for place in self._current if place not in wanted]:
            # The driver drops a limit itself when the cgroup is removed.
            if os.path.isdir(place[0]):
                self._set_limit(place[1], place[0], NO_LIMIT)
            del self._current[place]
        self._refused = {place: left for place, left in self._refused.items() if place in wanted}
        if not reason or reason == self._reported:
            return ""
        self._reported = reason
        return f"the driver holds no limits itself: {reason}"

    def counted(self) -> dict[tuple[str, str], Counted]:
        """Return each limit in force with what the driver counts against it, by cgroup and GPU."""
        limits = {place: hard for place, hard in self._current.items() if hard != NO_LIMIT}
        used = {place: self._count(place[1], place[0]) for place in limits}
        return {place: Counted(limits[place], n) for place, n in used.items() if n is not None}

    def _set(self, place: tuple[str, str], hard: int) -> str:
        folder, uuid = place
        if self._refused.get(place, 0) > 0:
            self._refused[place] -= 1
            return ""
        reason = self._set_limit(uuid, folder, hard)
        if not reason:
            self._current[place] = hard
            self._refused.pop(place, None)
        elif os.path.isdir(folder):
            self._refused[place] = _RETRY_POLLS
        else:
            reason = ""  # its container has just ended
        return reason
