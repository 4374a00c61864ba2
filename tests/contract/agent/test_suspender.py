"""The suspender over real records and pages: which containers it suspends and resumes, when."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.ledger.samples import GIB, gpus, host
from support.ledger.tenants import Tenants
from vcuda_hook.suspend import control
from vcuda_hook.suspend.operation import NotIdle
from vcuda_hook.suspend.places import Done
from vcuda_hook.suspend.wait_bound import longest_wait
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import (
    BY_DRAIN,
    BY_IDLENESS,
    BY_ORDER,
    BY_ROTATION,
    SUSPENDED,
    SUSPENDING,
    WAITING,
    Suspension,
)
from vcuda_oci.pages import layout
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.ledger.records import Records
from vcuda_plugin.agent.suspend.suspender import QUICK_SECONDS, SLOW_SECONDS, Suspender

ROTATES = [GpuShare("GPU-0", 12 * GIB, 40, rotates=True)]


class Node(Tenants):
    """now: the monotonic time that the suspender is told. calls: operations begun, in order.

    An operation changes the record only; `refuses` are ids that the driver refuses to suspend.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.now, self.calls = 1000.0, list[tuple[str, ...]]()
        self.refuses: set[str] = set()
        self.held, self.locking = 12 * GIB, 0.0
        self.at_work: set[str] = set()
        self.waiting: list[str] = []
        self.lock = threading.Lock()
        self.lines: list[str] = []
        self.suspender = self.restarted()

    def restarted(self, *more: str) -> Suspender:
        """With these settings too."""
        settings = settings_file.parse("\n".join(('memory-overcommit = "2"', *more)), "config.toml")
        return Suspender(Records(self.state_dir), host(16), settings, self.lines.append)

    def poll(self, seconds: float = 0.0) -> float:
        """Look after so many seconds, until what that began has ended."""
        self.now += seconds
        pause = self.suspender.poll(self.now)
        for thread in self.suspender._busy.values():
            thread.join(10)
        return pause

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.poll(1.0)

    def off(self, id: str, by: str, step: str = SUSPENDED, wanted: float = 0) -> None:
        self._set(id, Suspension(step, by, 1.0, {"GPU-0": GIB}, wanted))

    def asks(self, id: str, times: int) -> None:
        self._put(id, "usage.resume_asked", times)

    def inside(self, id: str, calls: int) -> None:
        slots = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE
        self._put(id, "usage_slot.calls_inside", calls, slots)

    def step(self, id: str) -> Any:
        held = self.ledger.get(id)
        assert held
        return held.suspension and held.suspension.step

    def _put(self, id: str, field: str, value: int, base: int = 0) -> None:
        at = {name: at for name, at, _ in layout.offsets()}
        with open(self.page(id), "r+b", 0) as page:
            os.pwrite(page.fileno(), struct.pack("=I", value), base + at[field])

    def _set(self, id: str, suspension: Suspension | None) -> None:
        ledger = Ledger(self.state_dir)
        with ledger:
            held = ledger.get(id)
            assert held
            ledger.record(held.replaced(suspension=suspension))

    def suspend(
        self, ledger: Any, facts: Any, id: str, rules: Rules, by: str, seconds: float
    ) -> Done:
        self.calls.append(("suspend", id, by))
        if id in self.refuses:
            raise VcudaError("managed memory", id, "end it")
        if id in self.at_work:
            raise NotIdle("a call", id, "wait")
        self.off(id, by)
        with self.lock:
            for first in self.waiting[:1]:
                self._come_back(first)
        return Done({"GPU-0": self.held}, seconds=self.locking + 2.0, locking=self.locking)

    def resume(self, ledger: Any, facts: Any, id: str, *more: Any, waiting: Any) -> Done:
        """As control.resume, but it does not wait itself for room and for its place."""
        self.calls.append(("resume", id))
        with self.lock:
            self.waiting += [id] if id not in self.waiting else []
            if self.waiting[0] != id or not self._come_back(id):
                self.off(id, BY_ROTATION, WAITING, wanted=1.0 + self.waiting.index(id))
        return Done({"GPU-0": self.held}, seconds=2.0)

    def _come_back(self, id: str) -> bool:
        """Resume a container if there is room."""
        records = self.ledger.read()[0]
        used = sum(share.memory_bytes for one in records for share in one.resident)
        (own,) = (one for one in records if one.id == id)
        if used + own.shares[0].memory_bytes > 16 * GIB:
            return False
        self._set(id, None)
        self.waiting.remove(id)
        return True


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Iterator[Node]:
    made = Node(str(tmp_path))
    monkeypatch.setattr(control, "suspend", made.suspend)
    monkeypatch.setattr(control, "resume", made.resume)
    yield made
    made.close()


def test_container_without_work_is_suspended_after_its_idle_time(node: Node) -> None:
    node.add_record("idle", idle_suspend=60)
    node.add_record("never")
    node.add_record("busy", idle_suspend=60)
    for second in range(63):
        node.uses("busy", busy_ns=second)
        node.poll(1.0)
    assert node.calls == [("suspend", "idle", BY_IDLENESS)]


def test_call_that_waits_in_the_driver_keeps_its_container_awake(node: Node) -> None:
    node.add_record("box", idle_suspend=60)
    node.uses("box")
    node.inside("box", 1)
    node.pass_time(100)
    assert node.calls == []
    node.inside("box", 0)
    node.pass_time(62)
    assert node.calls == [("suspend", "box", BY_IDLENESS)]


def test_next_call_resumes_an_idle_container_within_two_looks(node: Node) -> None:
    node.add_record("box", idle_suspend=60)
    node.off("box", BY_IDLENESS)
    node.asks("box", 5)
    assert node.poll() == QUICK_SECONDS
    assert node.calls == []
    node.asks("box", 6)
    node.poll(QUICK_SECONDS)
    assert node.calls == [("resume", "box")]
    assert node.step("box") is None
    assert node.poll(QUICK_SECONDS) == SLOW_SECONDS


def test_container_suspended_by_order_is_not_woken_by_calls(node: Node) -> None:
    node.add_record("box", idle_suspend=60)
    node.off("box", BY_ORDER)
    for asked in range(5):
        node.asks("box", asked)
        node.poll(1.0)
    assert node.calls == []


def test_container_of_a_drain_comes_back_once_its_gpu_is_used_again(node: Node) -> None:
    node.add_record("box")
    node.off("box", BY_DRAIN)
    unhealthy.write_drained(node.state_dir, {"GPU-0": unhealthy.Drain(1.0, ended=True)})
    node.asks("box", 1)
    node.pass_time(2)
    assert node.calls == []
    unhealthy.write_drained(node.state_dir, {})
    node.poll(1.0)
    assert node.calls == [("resume", "box")]


def test_nothing_gives_way_to_a_container_that_a_drained_gpu_keeps_off(node: Node) -> None:
    node.add_record("there", shares=ROTATES)
    node.add_record("waits", shares=ROTATES)
    node.off("waits", BY_ROTATION)
    unhealthy.write_drained(node.state_dir, {"GPU-0": unhealthy.Drain(1.0, ended=True)})
    node.pass_time(2)
    node.asks("waits", 1)
    node.pass_time(100)
    assert {call[:2] for call in node.calls} == {("resume", "waits")}


def test_nothing_gives_way_to_a_container_that_waits_for_another_gpu(node: Node) -> None:
    node.add_record("there", shares=ROTATES)
    node.add_record("leaves", shares=[GpuShare("GPU-0", 12 * GIB, 40)])
    moves = {"GPU-0": "GPU-1"}
    node._set("leaves", Suspension(WAITING, BY_ORDER, 1.0, {}, 1.0, moves=moves))
    node.uses("there")
    node.pass_time(5)
    assert node.calls == []


def test_one_that_leaves_already_is_enough_for_the_room_that_is_missing(node: Node) -> None:
    half = [GpuShare("GPU-0", 8 * GIB, 40, rotates=True)]
    for id in ("leaves", "stays", "waits"):
        node.add_record(id, shares=half)
    node.uses("stays")
    node.off("leaves", BY_ROTATION, SUSPENDING)
    node.off("waits", BY_ORDER, WAITING, wanted=1.0)
    node.pass_time(3)
    assert node.calls == []
    node._set("leaves", None)  # the driver has refused it
    node.poll()
    assert ("suspend", "stays", BY_ROTATION) in node.calls


def test_container_that_waits_gets_the_room_of_one_whose_quantum_has_ended(node: Node) -> None:
    node.add_record("there", shares=ROTATES)
    node.add_record("waits", shares=ROTATES)
    node.off("waits", BY_ROTATION)
    node.uses("there")
    node.inside("there", 1)
    node.pass_time(2)
    node.asks("waits", 1)
    node.poll(QUICK_SECONDS)
    assert node.calls == [("resume", "waits")]
    for _ in range(200):
        node.poll(1.0)
        if node.step("waits") is None:
            break
    assert ("suspend", "there", BY_ROTATION) in node.calls
    assert node.step("there") == SUSPENDED
    # Its call was in the driver, and cannot ask: the container asks all the same.
    node.calls.clear()
    node.pass_time(2)
    assert ("resume", "there") in node.calls


def seconds_until_it_gives_way(node: Node) -> int:
    """For how long a container at work keeps a GPU that another one waits for."""
    node.add_record("there", shares=ROTATES)
    node.add_record("waits", shares=ROTATES)
    node.off("waits", BY_ROTATION)
    node.uses("there")
    node.inside("there", 1)
    node.poll()
    node.asks("waits", 1)
    for second in range(500):
        node.poll(1.0)
        if node.step("there") == SUSPENDED:
            return second
    raise AssertionError("it never gave way")


def test_unmeasured_quantum_is_that_of_other_containers_by_their_bytes(node: Node) -> None:
    node.add_record("other", idle_suspend=1)
    node.held = 6 * GIB
    node.pass_time(4)
    assert node.calls == [("suspend", "other", BY_IDLENESS)]
    # 6 GiB took 2 s, so 12 GiB take 4 s each way, and the quantum is twelve times as long.
    assert 94 <= seconds_until_it_gives_way(node) <= 98


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_copy_of_next_to_nothing_is_no_measure_of_the_next_one(node: Node, held: int) -> None:
    node.add_record("other", idle_suspend=1)
    node.held = held
    node.pass_time(4)
    assert node.calls == [("suspend", "other", BY_IDLENESS)]
    # 12 GiB at 2 GiB a second, each way.
    assert 142 <= seconds_until_it_gives_way(node) <= 146


def test_last_kernels_of_a_container_give_it_no_longer_quantum(node: Node) -> None:
    node.locking = 9.0
    seconds_until_it_gives_way(node)
    there = node.ledger.get("there")
    assert there and node.suspender._swap(there) == 2 * 2.0


def test_fixed_quantum_of_the_settings_goes_before_the_measured_one(node: Node) -> None:
    node.suspender = node.restarted('rotation-quantum = "20s"')
    assert 18 <= seconds_until_it_gives_way(node) <= 22


def test_false_work_keeps_the_gpu_no_longer_than_a_quantum(node: Node) -> None:
    """A container that waits comes to the GPU, whatever the other one's page says of its work."""
    node.add_record("liar", shares=ROTATES)
    node.add_record("waits", shares=ROTATES)
    node.off("waits", BY_ROTATION)
    node.poll()
    node.asks("waits", 1)
    for second in range(200):
        node.uses("liar", busy_ns=second << 40)
        node.inside("liar", 1 + second % 5)
        node.asks("liar", second)
        node.poll(1.0)
        if node.step("waits") is None:
            break
    assert node.step("waits") is None
    assert node.step("liar") in (SUSPENDED, WAITING)


@pytest.mark.parametrize(("by", "quantum"), [(BY_IDLENESS, 0), (BY_IDLENESS, 20), (BY_ORDER, 0)])
def test_what_keeps_its_promise_is_back_within_the_stated_time(
    node: Node, by: str, quantum: int
) -> None:
    node.suspender = node.restarted(f'rotation-quantum = "{quantum}s"' if quantum else "")
    node.add_record("sleeps", shares=[GpuShare("GPU-0", 12 * GIB, 40)], idle_suspend=60)
    node.add_record("borrows", shares=ROTATES)
    node.off("sleeps", by)
    node.uses("borrows")
    node.inside("borrows", 1)
    node.poll()
    records = node.ledger.read()[0]
    (mine,) = (one for one in records if one.id == "sleeps")
    bound = longest_wait(mine, records, gpus(16), Rules(), quantum)
    assert bound == (quantum or 12 * 2 * 6) + 10 + (12 + 1) / 2 + 3
    if by == BY_ORDER:
        node.waiting = ["sleeps"]
        node.off("sleeps", by, WAITING, wanted=1.0)  # by `vcuda resume`
    node.asks("sleeps", 1)
    begun = node.now
    while node.step("sleeps"):
        node.poll(1.0)
        assert node.now - begun < bound
    assert node.step("borrows") == SUSPENDED


def test_container_that_the_driver_refuses_is_left_alone_for_a_time(node: Node) -> None:
    node.add_record("box", idle_suspend=60)
    node.refuses.add("box")
    node.pass_time(70)
    assert len(node.calls) == 1
    assert node.lines == ["cannot suspend: box: managed memory; end it"]
    node.pass_time(120)
    assert 2 <= len(node.calls) <= 3


def test_container_that_works_at_that_moment_is_tried_after_its_next_idle_time(node: Node) -> None:
    node.add_record("box", idle_suspend=10)
    node.at_work.add("box")
    node.pass_time(12)
    assert (len(node.calls), node.lines) == (1, [])
    node.at_work.clear()
    node.pass_time(12)
    assert (len(node.calls), node.step("box")) == (2, SUSPENDED)


def test_new_process_goes_on_with_what_the_records_say(node: Node) -> None:
    node.add_record("box", idle_suspend=60)
    node.off("box", BY_IDLENESS)
    node.asks("box", 5)
    node.poll()
    node.suspender = node.restarted()
    node.poll()
    node.asks("box", 6)  # a call that waits asks again and again
    node.poll(QUICK_SECONDS)
    assert node.calls == [("resume", "box")]


def test_page_of_nonsense_ends_nothing(node: Node) -> None:
    node.add_record("box", idle_suspend=1)
    node.add_record("idle", idle_suspend=60)
    with open(node.page("box"), "r+b") as page:
        page.write(os.urandom(4096))
    node.pass_time(63)
    assert ("suspend", "idle", BY_IDLENESS) in node.calls
    with open(node.page("box"), "r+b") as page:
        page.truncate(10)
    node.pass_time(3)
