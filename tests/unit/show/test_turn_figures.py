"""What readers make of the turn keeper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vcuda_hook.live import turn_figures
from vcuda_hook.live.turn_figures import GpuTurns, Turns

MS = 1_000_000
START = 50_000 * MS


def reading(at_ms: int, lost_ms: int = 0, **of: tuple[int, ...]) -> dict[str, GpuTurns]:
    """Read when it was written. of: milliseconds by allocation."""
    turns = {id: Turns(*(figure * MS for figure in (*figures, 0, 0))) for id, figures in of.items()}
    at_ns = START + at_ms * MS
    return {"GPU-0": GpuTurns(at_ns, at_ns, lost_ms * MS, turns)}


def shown(before: dict[str, GpuTurns], after: dict[str, GpuTurns], *ids: str) -> Any:
    """The entries of the containers, and the one of the GPU."""
    tenants: list[dict[str, Any]] = [
        {"id": id, "name": id.upper(), "gpu_uuid": "GPU-0"} for id in ids
    ]
    gpu: dict[str, Any] = {"uuid": "GPU-0"}
    turn_figures.add_to(tenants, [gpu], before, after)
    return tenants, gpu


def test_two_readings_give_percents_totals_and_the_reason_of_a_wait() -> None:
    before = reading(0, 100, a=(500, 100, 0, 60), b=(300, 300, 0, 40))
    after = reading(1000, 120, a=(800, 750, 50, 75), b=(1000, 600, 0, 45))
    (a, b), gpu = shown(before, after, "a", "b")
    assert gpu == {"uuid": "GPU-0", "lost_seconds": 0.12, "lost_percent": 2}
    assert {key: a[key] for key in turn_figures.TOTALS} == {
        "held_seconds": 0.8,
        "waited_for_turn_seconds": 0.75,
        "waited_for_share_seconds": 0.05,
        "lost_seconds": 0.075,
    }
    assert (a["held_percent"], a["waits_for"], a["held_by"]) == (30, "turn", ["B"])
    assert (b["held_percent"], b["waits_for"], b["held_by"]) == (70, "turn", ["A"])
    assert turn_figures.waits(a) == "waits: GPU held by B"


@pytest.mark.parametrize(
    ("waited", "text"),
    [
        ((0, 99), ""),
        ((40, 59), ""),
        ((0, 100), "waits: share used up"),
        ((300, 301), "waits: share used up"),
        ((300, 300), "waits: GPU held by C and 1 more"),
    ],
)
def test_the_reason_is_the_longer_of_the_waits_if_it_waits_at_all(
    waited: tuple[int, int], text: str
) -> None:
    before = reading(0, a=(0, 0, 0, 0), b=(0, 0, 0, 0), c=(0, 0, 0, 0), d=(7, 0, 0, 0))
    after = reading(1000, a=(0, *waited, 0), b=(200, 0, 0, 0), c=(300, 0, 0, 0), d=(7, 0, 0, 0))
    (a, *_), _ = shown(before, after, "a", "b", "c", "d")
    assert turn_figures.waits(a) == text


def test_a_wait_for_a_container_without_a_share_of_its_own_names_none() -> None:
    before, after = reading(0, a=(0, 0, 0, 0)), reading(1000, a=(0, 900, 0, 0))
    (a,), _ = shown(before, after, "a")
    assert turn_figures.waits(a) == "waits: GPU held by another container"


def test_without_a_new_figure_there_are_totals_and_no_percents() -> None:
    same = reading(0, 5, a=(500, 100, 0, 60))
    for before in (same, {}):
        (a, b), gpu = shown(before, same, "a", "b")
        assert (a["held_seconds"], a["held_percent"], a["waits_for"]) == (0.5, None, None)
        assert (b["held_seconds"], b["held_percent"], turn_figures.waits(b)) == (None, None, "")
        assert (gpu["lost_seconds"], gpu["lost_percent"]) == (0.005, None)


def test_percents_after_a_rest_are_of_the_time_since_the_earlier_reading() -> None:
    (old,) = reading(0, a=(0, 0, 0, 0)).values()
    before = {"GPU-0": old._replace(read_ns=START + 9200 * MS)}
    (a,), _ = shown(before, reading(10_000, a=(500, 0, 0, 0)), "a")
    assert a["held_percent"] == 62.5


def test_percents_while_turns_run_are_of_the_time_between_the_keepers_writes() -> None:
    (old,) = reading(0, a=(0, 0, 0, 0)).values()
    before = {"GPU-0": old._replace(read_ns=START + 450 * MS)}
    (a,), _ = shown(before, reading(1000, a=(300, 0, 0, 0)), "a")
    assert a["held_percent"] == 30


def test_figures_of_a_new_keeper_that_counts_anew_are_not_negative() -> None:
    before = reading(0, a=(500, 0, 0, 0), b=(0, 0, 0, 0))
    (a, _), gpu = shown(before, reading(100, a=(20, 0, 0, 0), b=(0, 80, 0, 0)), "a", "b")
    assert (a["held_percent"], gpu["lost_percent"]) == (20, 0)


def test_only_whole_files_are_read(tmp_path: Path) -> None:
    assert turn_figures.read(str(tmp_path)) == {}
    folder = tmp_path / "turns"
    folder.mkdir()
    for name, text in {
        "GPU-0": "7 5\n1 2 3 4 5 6 box\n5 6 7 8 9 0 pod-u.main\n",
        "GPU-1": "7 5\n",
        "GPU-2": "",
        "GPU-3": "7 5\n1 2 box\n",
        "GPU-4": "\xff\n",
        "GPU-0.new": "8 5\n",
    }.items():
        (folder / name).write_text(text, encoding="latin-1")
    found = turn_figures.read(str(tmp_path))
    assert {uuid: (turns.at_ns, turns.lost_ns, turns.of) for uuid, turns in found.items()} == {
        "GPU-0": (7, 5, {"box": Turns(1, 2, 3, 4, 5, 6), "pod-u.main": Turns(5, 6, 7, 8, 9, 0)}),
        "GPU-1": (7, 5, {}),
    }
