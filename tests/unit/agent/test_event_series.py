"""Events about pods are counted and rate-limited without loss."""

from __future__ import annotations

from typing import Any

import pytest

from support.ledger.samples import GIB, record
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.pods import event_series, pod_event
from vcuda_plugin.agent.pods.event_series import AllSeries
from vcuda_plugin.agent.pods.pod_event import Happened

UID = "0b5c5f6e-9c1d-4a7e-8f54-0d1c2b3a4f5e"
ID = f"pod-{UID}.main"


def event(kind: str = "refused", allocation: str = ID, **more: Any) -> dict[str, Any]:
    fields = {"kind": kind, "allocation": allocation, "text": "no room", "time": 1000.0}
    return {**fields, "pod": "ml/train/main", **more}


def happened(number: int = 0, at: float = 1000.0, times: int = 1) -> Happened:
    allocation = f"pod-{UID}.c{number}"
    recorded = event(allocation=allocation, pod=f"ml/train/c{number}", time=at, times=times)
    (found,) = pod_event.of_event(recorded, [])
    return found


def tell(series: AllSeries, now: float) -> list[tuple[str, int]]:
    """Send all Events that are due; return the container and the count of each."""
    sent = []
    while one := series.next(now):
        series.tried()
        series.is_sent(one, now)
        sent.append((one.last.key[1].rpartition(".")[2], one.count))
    return sent


def test_a_day_of_one_containers_restarts_is_one_series_counted_in_full() -> None:
    series, sent = AllSeries(0.0), []
    for second in range(24 * 3600):
        series.add(happened(at=1000.0 + second))
        sent += tell(series, float(second))
    assert len(sent) < 24 * 12 + 8
    sent += tell(series, 25 * 3600.0)
    assert sent[0] == ("c0", 1) and sent[-1] == ("c0", 24 * 3600)


def test_a_thousand_events_at_once_are_sent_at_a_pace_in_order() -> None:
    series = AllSeries(0.0)
    for number in range(1000):
        series.add(happened(number, at=1000.0 + number))
    sent = tell(series, 0.0)
    assert sent == [(f"c{number}", 1) for number in range(20)]
    assert tell(series, 0.5) == []
    for second in range(1, 981):
        sent += tell(series, float(second))
    assert [container for container, _ in sent] == [f"c{number}" for number in range(1000)]
    assert series.lost == 0


def test_stored_series_are_bounded_and_sent_ones_are_dropped_first() -> None:
    series = AllSeries(0.0)
    for number in range(event_series.MOST_SERIES):
        series.add(happened(number))
    assert len(tell(series, 0.0)) == 20
    for number in range(event_series.MOST_SERIES, event_series.MOST_SERIES + 20):
        series.add(happened(number))
    assert series.lost == 0
    series.add(happened(5000))
    assert (series.lost, len(series._of)) == (1, event_series.MOST_SERIES)


def test_the_time_of_the_last_sent_event_is_stored() -> None:
    series = AllSeries(0.0)
    assert series.unsent_since == float("inf")
    for at in (1000.0, 1001.0):
        series.add(happened(at=at))
    assert series.unsent_since == 1000.0
    tell(series, 0.0)
    for at in (1002.0, 1003.0):
        series.add(happened(at=at))
    assert series.unsent_since == 1002.0
    tell(series, 10.0)
    assert series.unsent_since == float("inf")


def test_after_an_hour_of_silence_the_same_is_another_event() -> None:
    series = AllSeries(0.0)
    names = []
    for at in (1000.0, 1010.0, 9000.0):
        series.add(happened(at=at))
        one = series.next(at)
        assert one
        series.is_sent(one, at)
        names.append((pod_event.name_of(one.first), one.count))
    assert [count for _, count in names] == [1, 2, 1]
    assert names[0][0] == names[1][0] != names[2][0]


def test_event_names_its_object_as_the_api_requires() -> None:
    first, last = happened(times=2), happened(at=2000.0)
    tree = pod_event.created(first, last, 1 << 40, "node-1")
    name = tree["metadata"].pop("name")
    assert name.startswith("train.") and len(name) == len("train.") + 16
    assert tree == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ml"},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": "train", "namespace": "ml", "uid": UID
        },
        "reason": "GpuShareRefused",
        "type": "Warning",
        "message": f"allocation pod-{UID}.c0: no room",
        "source": {"component": "vcuda-node-agent", "host": "node-1"},
        "reportingComponent": "vcuda-node-agent",
        "reportingInstance": "node-1",
        "firstTimestamp": "1970-01-01T00:16:40Z",
        "lastTimestamp": "1970-01-01T00:33:20Z",
        "count": (1 << 31) - 1,
    }  # fmt: skip


def test_an_unhealthy_gpu_is_reported_for_each_container_that_shares_it() -> None:
    def held(name: str, gpu: str) -> Any:
        pod = {"uid": UID, "namespace": "ml", "name": "train", "container": name}
        return record(f"pod-{UID}.{name}", pod=pod, shares=[GpuShare(gpu, GIB, 30)])

    records = [held("a", "GPU-0"), held("b", "GPU-1"), held("c", "GPU-0"), record("docker")]
    recorded = event("gpu-unhealthy", "", gpu="GPU-0", text="GPU-0 is unhealthy: Xid 79")
    found = list(pod_event.of_event(recorded, records))
    assert [one.text for one in found] == [
        f"allocation pod-{UID}.{name}: GPU-0 is unhealthy: Xid 79" for name in "ac"
    ]


def test_a_turn_overrun_is_reported_for_its_own_container_alone() -> None:
    records = [
        record(f"pod-{UID}.{name}", pod={"namespace": "ml", "name": "train", "container": name})
        for name in "ab"
    ]
    recorded = event("turn-overrun", f"pod-{UID}.b", gpu="GPU-0", text="its queue does not end")
    del recorded["pod"]
    (found,) = pod_event.of_event(recorded, records)
    assert (found.reason, found.namespace, found.pod) == ("GpuTurnOverrun", "ml", "train")
    assert found.text == f"allocation pod-{UID}.b: its queue does not end"


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "claimed"},
        {"allocation": "box"},
        {"pod": ""},
        {"pod": "../../kube-system/x/main"},
        {"pod": "ml/train%2f/main"},
        {"pod": "ml/train/other"},
        {"allocation": "pod-../x.main"},
        {"allocation": "pod-.main"},
        {"pod": "ml/" + "x" * 300 + "/main"},
    ],
)
def test_a_text_that_names_no_pod_is_not_looked_up(changes: dict[str, Any]) -> None:
    assert list(pod_event.of_event(event(**changes), [])) == []


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "\ud800" * 3])
def test_a_message_is_no_longer_than_the_api_takes(text: str) -> None:
    (found,) = pod_event.of_event(event(text=text, pod="ml/" + "p" * 253 + "/main"), [])
    assert len(found.text.encode()) <= 1000
    name = pod_event.name_of(found)
    assert len(name) == 253 and name.startswith("ppp")
