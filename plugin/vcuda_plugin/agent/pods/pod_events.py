"""Report what happened to this node's pods to the API: one Event for each series of the same.

The source is the node's event file. After an API outage the reports continue where they stopped;
the position is stored beside that file, for the next start of the agent.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from vcuda_oci.ledger import events
from vcuda_oci.ledger.event_reader import Reader
from vcuda_oci.model import jsontree, names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from ...kube.api import ApiError, KubeApi
from ...kube.retry import Retry
from ..ledger.records import Records
from . import pod_event
from .event_series import LIFE_SECONDS, AllSeries, Series

NAME = "pod-events.json"
PERIOD_SECONDS = 1.0
# Errors that pass. After any other (a namespace that is being removed, rights that an older chart
# does not give) the Event is dropped.
_PASSING = (0, 401, 408, 429, 500, 502, 503, 504)
_CONFLICT, _GONE = 409, 404

_log = logging.getLogger(__name__)


def run(kubeconfig: str, state_dir: str, node: str) -> None:
    """Runs until the process ends."""
    retry = Retry(_log.warning)
    sender = EventSender(state_dir, node, time.monotonic)
    api: KubeApi | None = None
    while True:
        pause = PERIOD_SECONDS
        sender.hear()
        try:
            # Create the client again after a failure: its certificates may have been renewed.
            api = api or KubeApi(kubeconfig, names.AGENT_PROGRAM)
            while sender.send_one(api):
                retry.forget()
        except (ApiError, VcudaError) as error:
            api = None
            pause = retry.after(f"events of pods on node {node}: {error}; kept until it is over")
        sender.remember()
        time.sleep(pause)


class EventSender:
    def __init__(self, state_dir: str, node: str, clock: Callable[[], float]) -> None:
        self._node, self._clock = node, clock
        self._reader = Reader(f"{state_dir}/{events.NAME}")
        self._records = Records(state_dir)
        self._series, self._lost = AllSeries(clock()), 0
        self._mark_path = f"{state_dir}/{NAME}"
        self._since = max(_read_mark(self._mark_path), time.time() - LIFE_SECONDS)
        self._mark = self._heard = self._since
        self._complained: set[int] = set()

    def hear(self) -> None:
        """Read the events recorded since the last call."""
        try:
            for event in self._reader.new():
                if event["time"] > self._since and event["kind"] in pod_event.REASONS:
                    held = self._records.read()
                    for happened in pod_event.of_event(event, held):
                        self._series.add(happened)
                self._heard = max(self._heard, event["time"])
        except OSError:
            pass  # read in the next round
        if self._series.lost != self._lost:
            lost, self._lost = self._series.lost - self._lost, self._series.lost
            _log.warning("events of pods on node %s: %d dropped, too many", self._node, lost)

    def send_one(self, api: KubeApi) -> bool:
        """Report the next series; False: there is none. Raises ApiError: nothing was reported."""
        series = self._series.next(self._clock())
        if series is None:
            return False
        self._series.tried()
        try:
            if series.sent:
                self._count(api, series)
            else:
                self._create(api, series)
        except ApiError as error:
            if error.status in _PASSING:
                raise
            if error.status == _GONE and series.sent:
                self._series.anew(series)
                return True
            self._give_up(series, error)
        self._series.is_sent(series, self._clock())
        return True

    def _create(self, api: KubeApi, series: Series) -> None:
        first = series.first
        path = f"/api/v1/namespaces/{first.namespace}/events"
        try:
            api.create(path, pod_event.created(first, series.last, series.count, self._node))
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            self._count(api, series)  # the earlier call succeeded, and its answer was lost

    def _count(self, api: KubeApi, series: Series) -> None:
        name = pod_event.name_of(series.first)
        path = f"/api/v1/namespaces/{series.first.namespace}/events/{name}"
        api.merge(path, pod_event.counted(series.last, series.count))

    def _give_up(self, series: Series, error: ApiError) -> None:
        """Log once for each status: a missing right is missing for all pods."""
        if error.status not in self._complained:
            last = series.last
            where = f"event {last.reason} of {last.namespace}/{last.pod}"
            _log.warning("%s (%s): given up: %s", where, last.key[1], error)
            self._complained.add(error.status)

    def remember(self) -> None:
        """Save the position up to which all events are reported."""
        unsent = self._series.unsent_since
        mark = self._heard if unsent > self._heard else unsent - 1e-6
        if mark != self._mark:
            try:
                files.replace(self._mark_path, jsontree.dumps({"time": mark}).encode(), 0o644)
                self._mark = mark
            except OSError:
                pass  # reported again after a restart


def _read_mark(path: str) -> float:
    try:
        return float(jsontree.loads(files.read_ours(path, 1 << 10))["time"])
    except (OSError, ValueError, TypeError, KeyError):
        return 0.0
