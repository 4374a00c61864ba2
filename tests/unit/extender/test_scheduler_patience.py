"""How long the extender waits before it refuses a pod, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from vcuda_oci.placement.rules import Rules
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter import patience
from vcuda_plugin.extender.filter.fit import Verdict
from vcuda_plugin.extender.filter.patience import Patience

REFUSED, FITS = Verdict(refused={"a": "full"}), Verdict(["a"])


class Clock:
    """now: seconds. slept: of it, those of waits. ring: called at each wait's end."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, 0.0
        self.ring = lambda: None

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds
        self.ring()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(patience, "asyncio", SimpleNamespace(sleep=clock.sleep))
    return clock


def test_refusals_in_a_row_wait_at_most_a_fifth_of_the_time(clock: Clock) -> None:
    waiting, began = Patience(Cluster(Rules())), clock.now
    for _ in range(5000):
        assert asyncio.run(waiting.found(lambda: REFUSED)) is REFUSED
        clock.now += 0.002
    # The last wait's rest may not be over.
    assert 1 < clock.slept <= (clock.now - began) / 5 + patience.WAIT_SECONDS


def test_pod_that_fits_does_not_wait_and_another_only_until_it_fits(clock: Clock) -> None:
    cluster = Cluster(Rules())
    waiting, answers = Patience(cluster), [REFUSED, REFUSED, FITS]
    assert asyncio.run(waiting.found(lambda: FITS)) is FITS
    assert clock.slept == 0

    def change() -> None:
        if clock.now > 1000.04:
            cluster.changes += 1

    clock.ring = change
    assert asyncio.run(waiting.found(lambda: answers.pop(0))) is FITS
    # Asked at once and after each of two changes, though not without a change.
    assert answers == []
    assert 0.04 < clock.slept < 0.08
