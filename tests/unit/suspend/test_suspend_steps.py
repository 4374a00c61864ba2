"""Which driver call comes next: with every failure, kill, death and start in between."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus, record
from vcuda_hook.checkpoint import drive, driver_worker, steps
from vcuda_hook.checkpoint.steps import (
    CHECKPOINT,
    CHECKPOINTED,
    CHECKPOINTING,
    DONE,
    FAILED,
    LOCK,
    LOCKED,
    OFF,
    ON,
    RESTORE,
    RESTORING,
    RUNNING,
    UNLOCK,
    WAIT,
)
from vcuda_hook.checkpoint.worker import Answer, Hangs, Memory
from vcuda_hook.suspend import relocation, room
from vcuda_hook.suspend.wait_bound import longest_wait
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import SUSPENDED, WAITING, Suspension
from vcuda_oci.placement.rules import Rules


@pytest.mark.parametrize(
    ("goal", "states", "expected"),
    [
        (OFF, [RUNNING, RUNNING], (LOCK, 0, 1)),
        (OFF, [LOCKED, RUNNING], (LOCK, 1)),
        (OFF, [CHECKPOINTED, RUNNING, LOCKED], (LOCK, 1)),
        (OFF, [LOCKED, CHECKPOINTED], (CHECKPOINT, 0)),
        (OFF, [CHECKPOINTED, CHECKPOINTING], (WAIT, 1)),
        (OFF, [LOCKED, RESTORING], (WAIT, 1)),
        (OFF, [CHECKPOINTED, FAILED], (DONE,)),
        (OFF, [], (DONE,)),
        (ON, [CHECKPOINTED, LOCKED], (RESTORE, 0)),
        (ON, [LOCKED, RESTORING], (WAIT, 1)),
        (ON, [LOCKED, RUNNING], (UNLOCK, 0)),
        (ON, [LOCKED, FAILED], (UNLOCK, 0)),
        (ON, [RUNNING, RUNNING, FAILED], (DONE,)),
    ],
)
def test_the_next_call_is_for_the_processes_that_are_furthest_behind(
    goal: str, states: Sequence[int], expected: tuple[Any, ...]
) -> None:
    call, *pids = expected
    assert steps.plan(goal, dict(enumerate(states))) == (call, tuple(pids))


@pytest.mark.parametrize(
    ("goal", "states", "found", "expected"),
    [
        (ON, [CHECKPOINTED, CHECKPOINTED], {0: CHECKPOINTED}, (RESTORE, 1)),
        (ON, [CHECKPOINTED, RUNNING], {0: CHECKPOINTED}, (DONE,)),
        (ON, [CHECKPOINTED, CHECKPOINTED], {0: LOCKED}, (RESTORE, 0, 1)),
        (ON, [LOCKED, LOCKED], {0: LOCKED}, (UNLOCK, 1)),
        (ON, [LOCKED, RUNNING], {0: LOCKED}, (DONE,)),
        (OFF, [LOCKED, RUNNING], {0: LOCKED}, (LOCK, 1)),
        (OFF, [LOCKED, LOCKED], {0: LOCKED}, (CHECKPOINT, 0, 1)),
    ],
)
def test_a_process_comes_back_to_where_another_program_had_it(
    goal: str, states: Sequence[int], found: Mapping[int, int], expected: tuple[Any, ...]
) -> None:
    call, *pids = expected
    assert steps.plan(goal, dict(enumerate(states)), found) == (call, tuple(pids))


EACH, SIZE = 4 * GIB, 32 * GIB  # what a process holds, and the GPU


class Killed(Exception):
    """The program that calls the driver was killed."""


class World:
    """Processes and a driver with faults; it takes the place of a worker.

    faults: what happens at each call for one process, one after the other: "" (the call does what
    it should), "refused", "late" (done, but an error is answered), "killed" before and "killed
    after" the call, "hangs", "dies" (the process ends), "starts" (another begins to use CUDA),
    "copies" (the call goes on in the driver, and the caller is killed).
    """

    def __init__(self, count: int, faults: Sequence[str] = (), start: int = RUNNING) -> None:
        self.now = dict.fromkeys(range(count), start)
        self.faults = list(faults)
        self.calls: list[str] = []
        self.left: set[int] = set()  # checkpointed by another program
        self.others = 0  # bytes that other programs hold on the GPU

    def targets(self) -> Mapping[int, int]:
        return dict.fromkeys(self.now, 1)

    def states(self, started: Mapping[int, int], end: float) -> dict[int, int]:
        found = dict(self.now)
        for pid, state in found.items():  # copying ends by the next look
            self.now[pid] = {CHECKPOINTING: CHECKPOINTED, RESTORING: LOCKED}.get(state, state)
        return found

    def memory(self, pids: Sequence[int], end: float) -> Memory:
        there = [pid for pid, state in self.now.items() if state not in (CHECKPOINTED, FAILED)]
        held = EACH * len([pid for pid in there if pid in pids])
        free = SIZE - self.others - EACH * len(there)
        return Memory({"GPU-0": held}, {"GPU-0": free}, [] if self.others else ["GPU-0"])

    def call(
        self,
        call: str,
        started: Any,
        pids: Sequence[int],
        end: float,
        progress: Any,
        pairs: Any,
    ) -> dict[int, Answer]:
        if call == CHECKPOINT:
            assert RUNNING not in self.now.values(), "checkpointed while one was at work"
        if call == UNLOCK:
            ours = {state for pid, state in self.now.items() if pid not in self.left}
            assert not {CHECKPOINTED, CHECKPOINTING, RESTORING} & ours
        return {pid: self._one(call, pid) for pid in pids}

    def _one(self, call: str, pid: int) -> Answer:
        self.calls.append(call)
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "killed":
            raise Killed
        if fault == "hangs":
            raise Hangs(call, [pid], 1)
        if fault == "refused":
            return Answer(999, self.now[pid])
        if fault == "lost":
            return Answer(304, self.now[pid])
        if fault == "dies":
            del self.now[pid]
            return Answer(driver_worker.GONE, driver_worker.NO_CUDA)
        if fault == "copies" and call in (CHECKPOINT, RESTORE):
            self.now[pid] = CHECKPOINTING if call == CHECKPOINT else RESTORING
            raise Killed
        self.now[pid] = steps.AFTER[call]
        if fault == "killed after":
            raise Killed
        if fault == "starts":
            self.now[max(self.now) + 1] = RUNNING
        return Answer(999 if fault == "late" else 0, self.now[pid])

    def bring(self, goal: str, needed: Mapping[str, int] = {}) -> drive.Outcome:
        return drive.bring(goal, self.targets, self, 5, needed=needed)  # type: ignore[arg-type]

    def either(self, *goals: str) -> str | None:
        """What control does: the first goal, or else the other."""
        return next((goal for goal in goals if not self.bring(goal).reason), None)

    def whole(self) -> str:
        """Where all are; fails if they are in different places."""
        found = {RUNNING: ON, CHECKPOINTED: OFF}
        places = {found.get(state, state) for state in self.now.values()}
        assert len(places) <= 1, self.now
        (place,) = places or {"nowhere"}
        assert place in (ON, OFF, "nowhere"), self.now
        return str(place)


FAULTS = st.lists(
    st.sampled_from(
        [
            "",
            "",
            "",
            "refused",
            "late",
            "killed",
            "killed after",
            "hangs",
            "dies",
            "starts",
            "copies",
        ]
    ),
    max_size=14,
)


@given(st.integers(1, 4), FAULTS, st.sampled_from([(OFF, ON), (ON, OFF)]))
def test_whatever_fails_the_next_repair_brings_all_to_one_place(
    count: int, faults: list[str], goals: tuple[str, str]
) -> None:
    world = World(count, faults, RUNNING if goals[0] == OFF else CHECKPOINTED)
    place: str | None = None
    try:
        place = world.either(*goals)
    except Killed:
        pass
    if place:
        assert world.whole() in (place, "nowhere")
        return
    for _ in faults:  # each repair may be killed, too
        with contextlib.suppress(Killed):
            world.either(ON, OFF)
    world.faults.clear()
    assert world.either(ON, OFF) == ON
    assert world.whole() in (ON, "nowhere")


@given(st.integers(1, 4), FAULTS)
def test_a_refused_suspension_leaves_all_at_work(count: int, faults: list[str]) -> None:
    world = World(count, [fault for fault in faults if "killed" not in fault and fault != "copies"])
    if world.bring(OFF).reason:
        world.faults.clear()
        assert not world.bring(ON).reason
        assert world.whole() in (ON, "nowhere")
    else:
        assert world.whole() in (OFF, "nowhere")


@given(st.lists(st.sampled_from([RUNNING, LOCKED, CHECKPOINTED]), min_size=1, max_size=4), FAULTS)
def test_processes_of_another_program_are_left_as_it_had_them(
    before: list[int], faults: list[str]
) -> None:
    """A kill comes after the record, or before any call."""
    world = World(0, [fault for fault in faults if fault not in ("dies", "starts")])
    world.now = dict(enumerate(before))
    world.left = {pid for pid, state in world.now.items() if state == CHECKPOINTED}
    record: dict[str, drive.Found] = {}

    def note(found: drive.Found) -> None:
        assert world.calls == []
        record["found"] = found

    with contextlib.suppress(Killed):
        drive.bring(OFF, world.targets, world, 5, note=note)  # type: ignore[arg-type]
    world.faults.clear()
    back = drive.bring(ON, world.targets, world, 5, found=record["found"])  # type: ignore[arg-type]
    assert back.reason == ""
    assert world.now == dict(enumerate(before))


class Interferes(World):
    """Another program changes the state of process 0 before this program's first call."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(2)
        self.now[0], self.after = before, after
        self.left = {0} if after == CHECKPOINTED else set()

    def _one(self, call: str, pid: int) -> Answer:
        if not self.calls:
            self.now[0] = self.after
        needs = {LOCK: RUNNING, CHECKPOINT: LOCKED, RESTORE: CHECKPOINTED, UNLOCK: LOCKED}
        if self.now[pid] != needs[call]:
            self.calls.append(call)
            return Answer(401, self.now[pid])
        return super()._one(call, pid)


@pytest.mark.parametrize("before", [RUNNING, LOCKED, CHECKPOINTED])
@pytest.mark.parametrize("after", [RUNNING, LOCKED, CHECKPOINTED])
def test_what_another_program_does_meanwhile_counts(before: int, after: int) -> None:
    world = Interferes(before, after)
    noted: list[drive.Found] = []
    off = drive.bring(OFF, world.targets, world, 5, note=noted.append)  # type: ignore[arg-type]
    assert (off.reason, set(world.now.values())) == ("", {CHECKPOINTED})
    back = drive.bring(ON, world.targets, world, 5, found=noted[-1])  # type: ignore[arg-type]
    assert (back.reason, world.now) == ("", {0: after, 1: RUNNING})


def test_a_process_that_the_driver_gave_up_is_named_and_holds_up_no_other() -> None:
    world = World(3)
    world.now[1] = FAILED
    refused = world.bring(OFF)
    assert (refused.reason, refused.lost) == ("the driver has given up process 1", (1,))
    assert world.calls == []
    world.now = {0: CHECKPOINTED, 1: FAILED, 2: LOCKED}
    back = world.bring(ON)
    assert (back.reason, back.lost) == ("", (1,))
    assert world.now == {0: RUNNING, 1: FAILED, 2: RUNNING}


@pytest.mark.parametrize("on_gpu", [0, 1])
def test_no_process_is_restored_without_room_for_all(
    on_gpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After one that found no room, the driver would refuse every other: bench/hardware.md."""
    monkeypatch.setattr(drive, "ROOM_SECONDS", 0.0)
    world = World(3)
    off = world.bring(OFF)
    assert off.held == {"GPU-0": 3 * EACH}
    if on_gpu:
        world.now[0] = LOCKED
    world.calls.clear()
    world.others = SIZE - 3 * EACH
    refused = world.bring(ON, off.held)
    missing, free = (3 - on_gpu) * 4, (3 - on_gpu) * 4
    what = f"GPU-0 has {free:.1f} GiB free, its processes need {missing:.1f} GiB"
    assert (refused.reason, refused.lost, world.calls) == (what, (), [])
    world.others -= GIB
    assert world.bring(ON, off.held).reason == ""
    assert set(world.now.values()) == {RUNNING}


def test_processes_that_filled_a_gpu_alone_come_back_to_it() -> None:
    world = World(SIZE // EACH)
    off = world.bring(OFF)
    assert off.held == {"GPU-0": SIZE}
    assert world.bring(ON, off.held).reason == ""


def test_a_restore_waits_for_a_neighbour_that_is_ending() -> None:
    world = World(1)
    off = world.bring(OFF)
    world.others = SIZE
    looks = iter(range(5))

    def memory(pids: Sequence[int], end: float) -> Memory:
        if next(looks) == 3:
            world.others = 0
        return World.memory(world, pids, end)

    world.memory = memory  # type: ignore[method-assign]
    assert world.bring(ON, off.held).reason == ""


def test_time_until_all_calls_have_ended_is_no_part_of_the_copy() -> None:
    world = World(1)
    call = world.call

    def slow(verb: str, *more: Any) -> dict[int, Answer]:
        time.sleep(0.1 if verb == LOCK else 0.0)
        return call(verb, *more)

    world.call = slow  # type: ignore[assignment]
    assert 0.1 <= world.bring(OFF).locking < 1


def test_a_process_that_can_never_be_restored_is_lost() -> None:
    world = World(2, ["", "lost"], start=CHECKPOINTED)
    refused = world.bring(ON)
    assert refused.reason == "the driver has lost process 1: it cannot restore it"
    assert refused.lost == (1,)


def waiting(id: str, wanted: float, core: int = 50, rotates: bool = False) -> Any:
    off = Suspension(WAITING if wanted else SUSPENDED, "order", 1, {}, wanted)
    shares = [GpuShare("GPU-0", 8 * GIB, core, rotates=rotates)]
    return record(id, shares=shares, suspension=off)


@pytest.mark.parametrize(
    ("others", "alive", "expected"),
    [
        ([], "", ""),
        ([waiting("a", 1)], "a", ""),
        ([waiting("a", 1, 60)], "a", "a waited for room before"),
        ([waiting("a", 1, 60)], "", ""),
        ([waiting("a", 9, 60)], "a", ""),
        ([waiting("a", 0, 60)], "a", ""),
        ([waiting("a", 1, 60, rotates=True)], "a", ""),  # it comes after those that keep theirs
        ([waiting("a", 1), waiting("b", 2)], "ab", "a, b waited for room before"),
        ([record("r", shares=[GpuShare("GPU-0", 8 * GIB, 60)])], "", "40 % and 8.0 GiB of GPU-0"),
        ([record("r", shares=[GpuShare("GPU-0", 9 * GIB, 10)])], "", "90 % and 7.0 GiB of GPU-0"),
        ([record("r", isolation="mps")], "", "GPU-0: its containers are under MPS"),
    ],
)
def test_room_is_given_in_the_order_of_the_first_wish(
    others: list[Any], alive: str, expected: str
) -> None:
    mine = waiting("me", 5)
    refused = room.refusal(mine, [mine, *others], gpus(16), Rules(), set(alive))
    assert (refused.reason if refused else "").startswith(expected)
    assert bool(refused) == bool(expected)


def test_refusal_for_want_of_room_names_a_container_that_can_leave_it() -> None:
    stays = record("s", shares=[GpuShare("GPU-0", 4 * GIB, 30)])
    guest = record("guest", shares=[GpuShare("GPU-0", 8 * GIB, 30, rotates=True)])
    mine = waiting("me", 5)
    refused = room.refusal(mine, [mine, stays, guest], gpus(16), Rules(), ())
    assert refused and refused.hint == "suspend guest, which has its room"
    large = stays.replaced(shares=[GpuShare("GPU-0", 12 * GIB, 30)])
    refused = room.refusal(mine, [mine, large], gpus(16), Rules(), ())
    assert refused and refused.hint == "end or suspend another container"


def test_move_takes_no_room_that_a_suspended_container_is_promised() -> None:
    sleeps = record("s", shares=[GpuShare("GPU-1", 12 * GIB, 50)], suspension=off_by_order())
    mine = waiting("me", 5)
    moves = mine.replaced(suspension=mine.suspension.replaced(moves={"GPU-0": "GPU-1"}))
    refused = room.refusal(moves, [moves, sleeps], gpus(16, 16), Rules(), ())
    assert refused and "50 % and 4.0 GiB of GPU-1 are free" in refused.reason
    here = relocation.room(mine, [mine, sleeps], gpus(16, 16), {"GPU-0": "GPU-1"}, Rules())
    assert here and here.reason == refused.reason
    assert room.refusal(mine, [mine, sleeps], gpus(16, 16), Rules(), ()) is None


def test_resume_on_another_gpu_holds_up_none_that_belongs_there() -> None:
    moves = Suspension(WAITING, "order", 1, {}, 1, moves={"GPU-1": "GPU-0"})
    comes = record("m", shares=[GpuShare("GPU-1", 12 * GIB, 60)], suspension=moves)
    mine = waiting("me", 5)
    assert room.refusal(mine, [mine, comes], gpus(16, 16), Rules(), {"m"}) is None
    # A promise that waits there is counted once.
    small = comes.replaced(shares=[GpuShare("GPU-1", 8 * GIB, 50)])
    assert room.refusal(small, [waiting("me", 0.5), small], gpus(16, 16), Rules(), {"me"}) is None


def test_wait_has_no_bound_behind_what_never_leaves_the_gpu() -> None:
    mine, here = waiting("me", 0), gpus(16)
    # Placed there by an earlier version, or since memory-overcommit was raised.
    stays = record("r", shares=[GpuShare("GPU-0", 9 * GIB, 10, managed=True)])
    assert longest_wait(mine, [mine, stays], here, Rules()) is None
    first = waiting("a", 1)
    alone, second = (longest_wait(mine, [mine, *more], here, Rules()) for more in ((), (first,)))
    there = record("t", shares=[GpuShare("GPU-0", 8 * GIB, 50, rotates=True)])
    behind = longest_wait(mine, [mine, first, there], here, Rules(), 30)
    assert (alone, second, behind) == (3, 2 * 3, 30 + 2 * 10 + 4 + 2 * 3)


def off_by_order() -> Suspension:
    return Suspension(SUSPENDED, "order", 1, {})
