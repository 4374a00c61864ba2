"""Decides whether a GPU is fit for new containers, from NVML's answers over time. Pure: no I/O.

A GPU becomes unhealthy after failing to answer for DOWN_SECONDS and healthy again after answering
for UP_SECONDS, so that a short failure or an unstable GPU does not change the kubelet's device list
each second. An Xid event makes a GPU unhealthy at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vcuda_oci.ledger.unhealthy import GpuFault
from vcuda_oci.system.settings_file import Config

DOWN_SECONDS = 4.0
UP_SECONDS = 8.0
# After an Xid that is not lasting, a GPU is healthy again if this time passes without another.
XID_SECONDS = 60.0


@dataclass
class _State:
    """The health of one GPU.

    failing_since, answering_since: start of the present run of failing or answering samples.
    reason: why it is unhealthy by its samples. xid: the last Xid that makes it unhealthy, until
    xid_until, or until it fails and recovers, as in a reset, if the Xid is lasting.
    """

    failing_since: float | None = None
    answering_since: float | None = None
    reason: str = ""
    xid: int = 0
    xid_until: float = 0.0


class Health:
    """The health of all GPUs. Times are in seconds.

    known: faults saved by an earlier agent, by UUID.
    """

    def __init__(self, settings: Config, known: Mapping[str, GpuFault] | None = None) -> None:
        self._settings = settings
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
        """Add a sample. uuids: all GPUs. failing: reason by UUID. xids: (UUID, number) events."""
        self._states = {uuid: self._states.get(uuid, _State()) for uuid in uuids}
        for uuid, state in self._states.items():
            if uuid in failing:
                self._fail(state, now, failing[uuid])
            else:
                self._answer(state, now)
        for uuid, xid in xids:
            if uuid in self._states and xid not in self._settings.ignored_xids:
                state = self._states[uuid]
                # An Xid that is not lasting must not replace a lasting one.
                if state.xid not in self._settings.lasting_xids:
                    state.xid, state.xid_until = xid, now + XID_SECONDS

    def unhealthy(self, now: float) -> dict[str, str]:
        """The reason of each unhealthy GPU, by UUID."""
        return {uuid: fault.why(now) for uuid, fault in self.faults(now).items()}

    def faults(self, now: float) -> dict[str, GpuFault]:
        """The fault of each unhealthy GPU, by UUID."""
        found = {}
        for uuid, state in self._states.items():
            lasts = state.xid in self._settings.lasting_xids
            xid = state.xid if lasts or now < state.xid_until else 0
            if state.reason or xid:
                until = None if lasts or not xid else state.xid_until
                found[uuid] = GpuFault(state.reason, xid, until)
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
            # The GPU failed and recovered, as after a reset: its earlier Xid is void.
            state.reason, state.xid = "", 0
