"""Which work counts as hidden beside a container's turns, and how much of it is charged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, record
from vcuda_hook.live import turn_figures
from vcuda_hook.live.turn_figures import GpuTurns, Turns
from vcuda_oci.guest import page_file
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_plugin.agent.bypass.hidden_work import IDLE, POLLS, Hidden, HiddenWork, Second
from vcuda_plugin.agent.bypass.turn_audit import TurnAudit

PERIOD = 2.0
SHARES = st.floats(0, 1)


def poll(
    held: float, used: float, free_ns: int = 0, total: float | None = None, false: bool = False
) -> dict[str, Second]:
    total = used if total is None else total
    return {"it": Second(PERIOD, held, used, total, free_ns, false)}


def about(seconds: float, *percents: int) -> Any:
    return (pytest.approx(seconds), *percents)


def after(polls: Sequence[dict[str, Second]]) -> list[Hidden | None]:
    """What each poll finds."""
    gpu = HiddenWork()
    return [gpu.add(one).get("it") for one in polls]


def test_work_beside_turns_is_found_after_some_polls_and_charged_as_a_whole() -> None:
    found = after([poll(0.1, 0.5)] * (POLLS + 3))
    # A second counts when the next poll has shown that no time in it was free.
    assert found[:POLLS] == [None] * POLLS
    seconds = [POLLS * 0.4 * PERIOD, 0.4 * PERIOD, 0.4 * PERIOD]
    assert found[POLLS:] == [about(one, 50, 10) for one in seconds]


@pytest.mark.parametrize(("false", "found"), [(False, None), (True, (0.02 * PERIOD, 17, 15))])
def test_little_hidden_work_counts_beside_false_signals_only(false: bool, found: Any) -> None:
    expected = None if found is None else about(*found)
    assert after([poll(0.15, 0.17, false=false)] * (POLLS + 2))[-1] == expected


def test_one_honest_second_in_so_many_hides_no_false_signals() -> None:
    polls = [poll(0.15, 0.17, false=at % POLLS != 9) for at in range(POLLS + 2)]
    assert after(polls)[-1] == about(0.02 * PERIOD, 17, 15)


def test_every_fourth_second_honest_needs_the_whole_certainty() -> None:
    polls = [poll(0.15, 0.17, false=at % 4 != 1) for at in range(POLLS + 9)]
    assert after(polls) == [None] * (POLLS + 9)


def test_a_container_that_rests_after_that_is_not_believed_for_it() -> None:
    lies = [poll(0.1, 0.5)] * (POLLS + 1)
    found = after([*lies, *[poll(0.0, 0.0)] * 50, *[poll(0.1, 0.5)] * 2])
    assert found[-1] == about(0.4 * PERIOD, 50, 10)


def test_a_container_that_obeys_for_some_time_is_believed_again() -> None:
    obeys = [poll(0.5, 0.5)] * (2 * POLLS)
    assert after([*[poll(0.1, 0.5)] * (POLLS + 1), *obeys])[-1] is None


@given(st.lists(st.tuples(SHARES, SHARES), min_size=20, max_size=60))
def test_use_within_turns_is_never_hidden(seconds: list[tuple[float, float]]) -> None:
    polls = [poll(max(pair), min(pair)) for pair in seconds]
    assert set(after(polls)) == {None}


@pytest.mark.parametrize("duty", [0.1, 0.3, 0.5, 0.9])
def test_bursts_are_hardly_ever_charged_where_nvml_shows_another_second(duty: float) -> None:
    """A program that works in bursts, for eleven hours; each figure of NVML's is of another one."""
    random = Random(duty)
    polls = [
        poll(0.7 * (random.random() < duty), 0.7 * (random.random() < duty)) for _ in range(20_000)
    ]
    charged = sum(one.new_seconds for one in after(polls) if one)
    assert charged <= 1e-3 * PERIOD * len(polls)


def test_time_without_turns_is_never_hidden_work() -> None:
    polls = [poll(0.1, 0.9, free_ns=at) for at in range(10)]
    assert set(after(polls)) == {None}


def test_a_turn_without_work_ends_the_suspicion() -> None:
    lies = [poll(0.0, 0.5)] * (POLLS - 1)
    assert set(after([*lies, poll(0.5, 0.5 - IDLE - 0.01), *lies])) == {None}


def test_figures_that_add_up_to_more_than_the_gpu_charge_nothing() -> None:
    assert set(after([poll(0.3, 0.9, total=1.8)] * 20)) == {None}


def several(held: Sequence[float], used: Sequence[float]) -> dict[str, Second]:
    """One second of several containers; NVML's figures may add up to more than the GPU."""
    return {
        str(at): Second(PERIOD, *parts, sum(used), 0, False)
        for at, parts in enumerate(zip(held, used))
    }


def test_waiting_that_nvml_counts_as_work_shows_who_waits_on_the_gpu() -> None:
    gpu = HiddenWork()
    found = [gpu.add(several([0.3, 0.7], [1.0, 0.7])) for _ in range(POLLS + 3)]
    part = 1.0 / 1.7
    assert found[-1] == {"0": about(0.7 * PERIOD, round(100 * part), 30)}


@pytest.mark.parametrize(("free_ms", "found"), [(0, 0), (200, 0), (600, 1)])
def test_a_neighbour_behind_hidden_work_shows_it_by_its_free_time(free_ms: int, found: int) -> None:
    """Its own work waits beyond its turns; 0.9 of the second, as the hidden work itself."""
    gpu, last = HiddenWork(), {}
    for at in range(POLLS + 3):
        free_ns = {"liar": 0, "other": round(at * free_ms * 1e6 * PERIOD)}
        polled = {id: Second(PERIOD, 0.3, 0.9, 1.8, free_ns[id], False) for id in free_ns}
        last = gpu.add(polled)
    assert len(last) == found


def test_figures_that_differ_all_the_time_tell_containers_apart() -> None:
    gpu = HiddenWork()
    found = [gpu.add(several([0.3, 0.6], [0.5, 0.8])) for _ in range(POLLS + 3)]
    assert list(found[-1]) == ["0"]


@given(st.lists(st.floats(0.02, 1), min_size=2, max_size=16), SHARES)
def test_figures_that_count_the_work_of_others_charge_nobody(
    weights: list[float], load: float
) -> None:
    """As if NVML gave each busy process what the GPU worked in all."""
    held = [load * weight / sum(weights) for weight in weights]
    gpu = HiddenWork()
    found = [gpu.add(several(held, [load] * len(held))) for _ in range(2 * POLLS)]
    assert not any(map(len, found))


def test_errors_of_single_seconds_cancel_out() -> None:
    used = [0.6, 0.4, 0.5, 0.5] * 10
    found = after([poll(0.0, part) for part in used])
    charged = sum(one.new_seconds for one in found if one)
    assert charged == pytest.approx(PERIOD * sum(used[:-1]), abs=PERIOD)


def test_a_container_that_has_ended_is_forgotten() -> None:
    gpu = HiddenWork()
    for _ in range(POLLS + 1):
        gpu.add(poll(0.0, 0.5))
    gpu.add({})
    assert gpu.add(poll(0.0, 0.5)) == {}


def test_time_without_turns_is_no_sign_that_a_container_obeys_again() -> None:
    lies = [poll(0.1, 0.5)] * (POLLS + 1)
    free = [poll(0.0, 0.9, free_ns=at) for at in range(1, 20)]
    found = after([*lies, *free, *[poll(0.1, 0.5, free_ns=20)] * 2])
    assert found[POLLS + 1 : -1] == [None] * 20
    assert found[-1] == about(0.4 * PERIOD, 50, 10)


def with_record(folder: Path) -> tuple[Ledger, Allocation]:
    """A ledger with a container on GPU-0, and its record."""
    ledger = Ledger(str(folder))
    allocation = record("it", shares=[GpuShare("GPU-0", 4 * GIB, 30)])
    with ledger:
        ledger.write(allocation, limits.page_of(allocation))
    return ledger, allocation


def test_hidden_work_of_a_moved_container_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, before = with_record(tmp_path)
    figures = {"GPU-0": GpuTurns(0, 0, 0, {"it": Turns(0, 0, 0, 0, 0, 0)})}
    monkeypatch.setattr(turn_figures, "read", lambda state_dir: figures)
    monkeypatch.setattr(HiddenWork, "add", lambda gpu, poll: {"it": Hidden(1.5, 90, 30)})
    audit = TurnAudit(str(tmp_path))

    def charged_ms(now: Allocation) -> int:
        audit.begin()
        assert audit.end([now], {}, {}).keys() == {("it", "GPU-0")}
        page = page_file.read_page(f"{ledger.containers}/it/limits", layout.LIMITS_SIZE)
        return page_reader.read_limits(page).gpus[0].hidden_ms

    assert charged_ms(before) == 1500
    assert charged_ms(before.replaced(shares=[GpuShare("GPU-1", 4 * GIB, 30)])) == 1500


def test_no_page_is_read_again_while_its_gpu_has_no_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, it = with_record(tmp_path)
    path = Path(ledger.containers, "it/limits")
    at = next(at for name, at, _ in layout.offsets() if name == "limits_gpu.turn_held_ns")
    reads: list[str] = []
    read_page = page_file.read_page

    def counted(path: str, size: int) -> bytes:
        reads.append(path)
        return read_page(path, size)

    monkeypatch.setattr(page_file, "read_page", counted)
    polls: list[Second] = []

    def kept(gpu: HiddenWork, poll: dict[str, Second]) -> dict[str, Hidden]:
        polls.extend(poll.values())
        return {}

    monkeypatch.setattr(HiddenWork, "add", kept)
    audit = TurnAudit(str(tmp_path))

    def held_after(held_ns: int, written_at_ns: int) -> float:
        """The nanoseconds held in a second in which the keeper wrote the page and its figures."""
        begins = time.monotonic_ns()
        audit.begin()
        with path.open("r+b") as page:
            page.seek(layout.LIMITS_HEAD_SIZE + at)
            page.write(held_ns.to_bytes(8, "little"))
        turns = GpuTurns(written_at_ns, time.monotonic_ns(), 0, {"it": Turns(0, 0, 0, 0, 0, 0)})
        monkeypatch.setattr(turn_figures, "read", lambda state_dir: {"GPU-0": turns})
        audit.end([it], {}, {})
        return polls.pop().held * (time.monotonic_ns() - begins) if polls else -1

    long_ago = time.monotonic_ns() - 5 * 10**9
    held_after(100, long_ago)
    assert len(reads) == 1
    assert held_after(100, long_ago) == 0
    assert held_after(100, long_ago) == 0
    assert len(reads) == 1
    assert held_after(10**9, time.monotonic_ns()) > 9 * 10**8
    assert len(reads) == 2
    assert held_after(2 * 10**9, time.monotonic_ns()) > 9 * 10**8
    assert len(reads) == 4
