"""A claim's status is written once the kubelet has long had its answer."""

from __future__ import annotations

from typing import Any

import pytest

from support.kubelet.dra_claims import NODE, claim, result
from support.ledger.samples import gpus
from vcuda_plugin.agent.dra import claim_status
from vcuda_plugin.agent.dra.claim_request import of_claim


class Clock:
    """Virtual time, in place of the module `time`."""

    strftime, gmtime = staticmethod(lambda *_: ""), staticmethod(lambda _: None)

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    monotonic = time

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Api:
    """Ends the writer after the third call."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.calls = clock, list[tuple[str, float]]()

    def call(self, method: str, path: str, *_: Any, **options: Any) -> tuple[int, Any]:
        self.calls.append((path.split("/")[-2], self.clock.now))
        if len(self.calls) == 3:
            raise SystemExit
        return 200, {}


def test_each_report_is_written_a_second_after_its_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(claim_status, "time", clock)
    reports, api = claim_status.Reports(NODE), Api(clock)
    for name, at in (("a", 100.0), ("b", 100.25), ("c", 105.0)):
        clock.now = at
        tree = claim(name, result("GPU-0"))
        reports.add(tree, of_claim(tree, name, NODE, gpus(16)))
    clock.now = 100.25
    with pytest.raises(SystemExit):
        reports.write(api)  # type: ignore[arg-type]
    assert [at for _, at in api.calls] == [101.0, 101.25, 106.0]
