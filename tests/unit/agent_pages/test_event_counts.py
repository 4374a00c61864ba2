"""Counters of events only grow, also over restarts."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.ledger.samples import GIB, gpus
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Refused, choose
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.http.event_counts import FOLDER, KNOWN_KINDS, NAME, EventCounts, reason_of


def tell(state_dir: Any, kind: str, text: str = "", **more: Any) -> None:
    events.record(str(state_dir), "vcuda-container-runtime", kind, "box", text, **more)


def test_what_happened_is_counted_by_kind_reason_and_time(tmp_path: Any) -> None:
    for seconds in (0.004, 0.02, 0.03, 60.0):
        tell(tmp_path, "claimed", seconds=seconds)
    tell(tmp_path, "refused", "placement: largest free share is 10 % and 3 GiB on GPU-0")
    tell(tmp_path, "refused", "the driver is gone")
    tell(tmp_path, "bypass-found")
    counts = EventCounts(str(tmp_path)).read()
    assert counts.kinds == {"claimed": 4, "refused": 2, "bypass-found": 1}
    assert counts.reasons == {"share": 1, "other": 1}
    assert counts.starts == [1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    assert counts.start_seconds == pytest.approx(60.054)


def test_restarted_agent_continues_its_counters(tmp_path: Any) -> None:
    first = EventCounts(str(tmp_path))
    tell(tmp_path, "claimed")
    assert first.read().kinds == {"claimed": 1}
    tell(tmp_path, "claimed")  # while none runs
    second = EventCounts(str(tmp_path))
    assert second.read().kinds == second.read().kinds == {"claimed": 2}


def test_a_file_that_was_turned_meanwhile_is_read_to_its_end(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MOST_BYTES", 1000)
    counts = EventCounts(str(tmp_path))
    for number in range(50):
        tell(tmp_path, "claimed", str(number))
        if number % 5 == 0:
            counts.read()
    assert os.path.exists(tmp_path / (events.NAME + ".1"))
    assert counts.read().kinds == {"claimed": 50}


def test_partial_line_counts_once_it_is_complete(tmp_path: Any) -> None:
    counts = EventCounts(str(tmp_path))
    path = tmp_path / events.NAME
    path.write_bytes(b'{"kind": "claimed"}\nno event\n[]\n{"kind": "rel')
    assert counts.read().kinds == {"claimed": 1}
    with open(path, "ab") as file:
        file.write(b'eased"}\n')
    assert counts.read().kinds == {"claimed": 1, "released": 1}


@pytest.mark.parametrize("kept", ["", "{}", '{"kinds": {"claimed": "x"}}', "[" * 9999])
def test_corrupt_count_is_recomputed_from_current_use(tmp_path: Any, kept: str) -> None:
    tell(tmp_path, "claimed")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / NAME).write_text(kept)
    assert EventCounts(str(tmp_path)).read().kinds == {"claimed": 1}


def test_every_kind_of_event_is_counted_from_the_start() -> None:
    words = {name: word for name, word in vars(events).items() if name.isupper()}
    kinds = {word for name, word in words.items() if isinstance(word, str) and name != "NAME"}
    assert kinds == KNOWN_KINDS.keys()


def test_kinds_are_bounded(tmp_path: Any) -> None:
    for number in range(100):
        tell(tmp_path, "kind-" + "x" * (number % 20) + "y" * (number // 20))
        tell(tmp_path, "no kind\n")
    kinds = EventCounts(str(tmp_path)).read().kinds
    assert len(kinds) <= 33 and sum(kinds.values()) == 200


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request.of(50, 20 * GIB), "share"),
        (Request.of(90, GIB), "share"),
        (Request.of(200, None), "whole-gpus"),
        (Request.of(30, GIB, gpus=("9",)), "unknown-gpu"),
    ],
)
def test_placement_refusals_are_recognised_by_their_text(request_: Request, reason: str) -> None:
    taken = [GpuShare("GPU-0", 4 * GIB, 30)]
    answer = choose(gpus(16, 0), taken, request_, Rules(settings_file.BINPACK))
    assert isinstance(answer, Refused)
    assert reason_of(answer.reason) == reason
