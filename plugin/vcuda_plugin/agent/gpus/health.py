"""Whether a GPU is fit for new containers, from what NVML said over time: pure.

A GPU that fails to answer is unhealthy when it has failed for a while, and healthy again when it
has answered for a while: neither a hiccup nor a GPU that comes and goes makes the kubelet think
anew each second. An Xid event counts at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcuda_oci.unhealthy import Ailment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

DOWN_SECONDS = 4.0
UP_SECONDS = 8.0
# An Xid that does not last: after so long without another the GPU counts as healthy.
XID_SECONDS = 60.0


@dataclass
class _State:
    """failing_since, answering_since: of the present run of looks. reason: why it is unhealthy by
    looks. xid: the last that counts; it does so until xid_until, or a reset."""

    failing_since: float | None = None
    answering_since: float | None = None
    reason: str = ""
    xid: int = 0
    xid_until: float = 0.0


class Health:
    """ignored, lasting: Xids by their class, as the settings say. Times are in seconds.

    known: what is wrong with GPUs already, by UUID.
    """

    def __init__(
        self,
        ignored: Collection[int],
        lasting: Collection[int],
        known: Mapping[str, Ailment] | None = None,
    ) -> None:
        self._ignored, self._lasting = ignored, lasting
        self._states = {
            uuid: _State(reason=was.reason, xid=was.xid, xid_until=was.until or 0.0)
            for uuid, was in (known or {}).items()
        }

    def see(
        self,
        now: float,
        uuids: Iterable[str],
        failing: Mapping[str, str],
        xids: Iterable[tuple[str, int]] = (),
    ) -> None:
        """One look: which GPUs there are, what those that fail answered, what events came."""
        self._states = {uuid: self._states.get(uuid, _State()) for uuid in uuids}
        for uuid, state in self._states.items():
            if uuid in failing:
                self._fail(state, now, failing[uuid])
            else:
                self._answer(state, now)
        for uuid, xid in xids:
            if uuid in self._states and xid not in self._ignored:
                state = self._states[uuid]
                # One that lasts is not made to pass by one that does not.
                if state.xid not in self._lasting:
                    state.xid, state.xid_until = xid, now + XID_SECONDS

    def unhealthy(self, now: float) -> dict[str, str]:
        """The reason of each GPU that is, by UUID."""
        return {uuid: ailment.why(now) for uuid, ailment in self.ailments(now).items()}

    def ailments(self, now: float) -> dict[str, Ailment]:
        """What is wrong with each GPU that is unhealthy, by UUID."""
        found = {}
        for uuid, state in self._states.items():
            lasts = state.xid in self._lasting
            counts = lasts or now < state.xid_until
            xid = state.xid if counts else 0
            if state.reason or xid:
                until = None if lasts or not xid else state.xid_until
                found[uuid] = Ailment(state.reason, xid, until)
        return found

    def _fail(self, state: _State, now: float, reason: str) -> None:
        state.answering_since = None
        if state.failing_since is None:
            state.failing_since = now
        if now - state.failing_since >= DOWN_SECONDS:
            state.reason = reason

    def _answer(self, state: _State, now: float) -> None:
        state.failing_since = None
        if state.answering_since is None:
            state.answering_since = now
        if state.reason and now - state.answering_since >= UP_SECONDS:
            # It was lost and is back: what an Xid said of it before is over.
            state.reason, state.xid = "", 0
