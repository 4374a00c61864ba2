"""Refused memory and long waits for GPU time are reported, at a limited rate."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.ledger.samples import GIB
from support.ledger.tenants import Tenants
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import layout
from vcuda_plugin.agent.compute import shortage_watch
from vcuda_plugin.agent.compute.shortage import LAST_PAUSE_SECONDS, Finding, Reading, Share
from vcuda_plugin.agent.compute.shortage_watch import ShortageWatch

POD = {"uid": "u", "namespace": "ml", "name": "train", "container": "main", "sandbox_id": "s"}


def findings_of(
    readings: list[tuple[float, int, float]], before: int = 0
) -> list[tuple[float, Finding]]:
    """The time of each finding, from readings of which the first is the baseline."""
    share = Share(Reading(*readings[0]), before)
    return [(each[0], found) for each in readings for found in share.see(Reading(*each))]


def memory(times: int) -> Finding:
    return Finding("out-of-memory", times, 0)


def test_refusals_are_reported_at_once_and_later_ones_together() -> None:
    readings = [(0.0, 3, 0.0), (5.0, 4, 0.0), (10.0, 9, 0.0), (65.0, 9, 0.0), (70.0, 9, 0.0)]
    assert findings_of(readings) == [(0.0, memory(3)), (65.0, memory(6))]
    assert findings_of(readings, before=3) == [(5.0, memory(1)), (65.0, memory(5))]


def test_a_container_that_restarts_in_a_loop_is_reported_a_few_times_a_day() -> None:
    day = findings_of([(5.0 * look, look, 5.0 * look) for look in range(24 * 720)])
    kinds = [found.kind for _, found in day]
    assert kinds.count("out-of-memory") == kinds.count("throttled") == 29
    assert sum(found.times for _, found in day if found.kind == "out-of-memory") > 24 * 720 - 721


def test_after_a_long_quiet_time_it_is_reported_as_the_first_time() -> None:
    loop = [(5.0 * look, look, 0.0) for look in range(720)]
    later = 3600 + 2 * LAST_PAUSE_SECONDS
    readings = [*loop, (later, 800, 0.0), (later + 60, 801, 0.0)]
    assert [at for at, _ in findings_of(readings)][-2:] == [later, later + 60]


def test_a_container_that_waits_half_of_a_minute_or_more_is_heavily_throttled() -> None:
    assert findings_of([(0.0, 0, 0.0), (59.0, 0, 59.0)]) == []
    assert findings_of([(0.0, 0, 0.0), (60.0, 0, 29.0)]) == []
    assert findings_of([(0.0, 0, 0.0), (60.0, 0, 30.0)]) == [(60.0, Finding("throttled", 1, 50))]
    eight_threads = [(0.0, 0, 0.0), (30.0, 0, 240.0), (60.0, 0, 480.0)]
    assert findings_of(eight_threads) == [(60.0, Finding("throttled", 1, 100))]


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_page_overwritten_repeatedly_causes_few_reports(word: int) -> None:
    loop = ((5.0 * look, *((5, 100.0), (word, word / 1e9))[look % 2]) for look in range(720))
    found = [finding for _, finding in findings_of(list(loop), before=5)]
    assert [finding.kind for finding in found].count("out-of-memory") <= 7
    assert all(finding.percent <= 100 for finding in found) and len(found) <= 14


class Watched:
    """A node's tenants, polled as by the agent."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants, self.watch = tenants, ShortageWatch(tenants.state_dir)

    def events(self) -> list[dict[str, Any]]:
        self.watch.check()
        return list(events.read(self.tenants.state_dir))


@pytest.fixture
def tenants(tmp_path: Any) -> Iterator[Tenants]:
    node = Tenants(str(tmp_path))
    yield node
    node.close()


def holds(tenants: Tenants, id: str = "pod-u.main") -> None:
    tenants.add_record(id, shares=[GpuShare("GPU-0", GIB, 30)], pod=POD)


def test_an_event_names_the_container_its_limit_and_its_gpu(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds(tenants)
    watched = Watched(tenants)
    assert watched.events() == []
    tenants.uses("pod-u.main", refusals=2, throttled_ns=45_000_000_000)
    now = time.monotonic_ns() + 60_000_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: now)
    refused, waited = watched.events()
    assert refused.pop("time") and waited.pop("time")
    common = {"from": "vcuda-node-agent", "allocation": "pod-u.main", "container": "pod-u.main"}
    common.update(pod="ml/train/main", gpu="GPU-0")
    text = "2 allocations refused at its limit, 1 GiB of GPU-0"
    assert refused == {**common, "kind": "out-of-memory", "text": text, "times": 2}
    text = "its launches waited 75 % of the last minute for their 30 % of GPU-0"
    assert waited == {**common, "kind": "throttled", "text": text, "times": 1}


def test_events_of_before_the_agents_start_are_not_sent_and_later_ones_are(
    tenants: Tenants,
) -> None:
    holds(tenants)
    tenants.uses("pod-u.main", refusals=2)
    watched = Watched(tenants)
    assert watched.events() == []
    holds(tenants, "pod-v.main")  # the refusal was before the first poll
    tenants.uses("pod-v.main", refusals=1)
    assert [event["allocation"] for event in watched.events()] == ["pod-v.main"]


def test_restarted_container_starts_with_zero_usage(tenants: Tenants) -> None:
    holds(tenants)
    watched = Watched(tenants)
    assert watched.events() == []
    tenants.uses("pod-u.main", refusals=5)
    assert len(watched.events()) == 1
    holds(tenants)  # a fresh page
    tenants.uses("pod-u.main", refusals=1)
    assert len(watched.events()) == 1
    (share,) = watched.watch._shares["pod-u.main"][1]
    assert share._memory.times == 1  # held until the end of the pause


def test_no_more_of_a_page_is_read_than_needed(
    tenants: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds(tenants)
    watched = Watched(tenants)
    read = []
    original = os.pread
    monkeypatch.setattr(os, "pread", lambda *call: read.append(call[1]) or original(*call))
    watched.watch.check()
    assert read == [layout.USAGE_HEAD_SIZE + layout.USAGE_GPU_SIZE]


def test_a_page_without_figures_delays_no_other(tenants: Tenants) -> None:
    holds(tenants, "pod-a.main")
    holds(tenants)
    watched = Watched(tenants)
    watched.watch.check()
    with open(tenants.page("pod-a.main"), "wb") as page:
        page.write(b"\xff" * 100)
    tenants.uses("pod-u.main", refusals=5)
    assert [event["allocation"] for event in watched.events()] == ["pod-u.main"]
    assert shortage_watch.PERIOD_SECONDS < 10  # a restarted container has no page then
