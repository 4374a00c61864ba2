"""The turn keeper's figures and events, as readers of the state folder see them."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.policy_node import TURN_KEEPER, PolicyNode
from support.gpu.guest import BUILD, Guest
from support.ledger.tenants import Tenants
from support.waiting import until
from vcuda_hook.live import turn_figures
from vcuda_hook.live.turn_figures import GpuTurns, Turns
from vcuda_oci.ledger import events
from vcuda_oci.pages import layout, limits_in_place, page_reader
from vcuda_plugin.agent.http.event_counts import EventCounts

SECONDS = 5
NS = SECONDS * 1_000_000_000
# Of the elapsed time.
ERROR = 0.01
BUSY, IN_WAIT, WANTS = 1, 2, 4
STATE, OPEN, HELD = 3, 1, 3


def work_on_gpu(node: PolicyNode) -> list[float]:
    """How much of the window each ended process used the GPU, by the GPU's own account."""
    command = [f"{BUILD}/softgpu/softgpu", "time", node.driver_root, "--json", "--as-is"]
    done = subprocess.run(command, check=True, capture_output=True)
    gpu = json.loads(done.stdout)["gpus"][0]
    return sorted(process["held_ns"] / NS for process in gpu["ended"])


def turns_of(node: PolicyNode, guests: Sequence[Guest], **shape: Any) -> GpuTurns:
    """The figures after all were busy for the window, in virtual time."""
    clock = node.clock(len(guests))
    node.shares_on(clock, guests, SECONDS, **shape)
    uuid = node.host.gpus[0].uuid

    def complete() -> GpuTurns | None:
        turns = turn_figures.read(node.state_dir)[uuid]
        whole = [sum(of[:3]) > (1 - ERROR) * NS for of in turns.of.values()]
        return turns if all(whole) else None

    return until(complete, lambda: str(turn_figures.read(node.state_dir)[uuid]))


def parts(turns: GpuTurns, id: str) -> Any:
    """Held, waited for its turn, waited for its share, of the window."""
    return pytest.approx([ns / NS for ns in turns.of[id][:3]], abs=ERROR)


def test_two_busy_containers_hold_the_gpu_or_wait_for_each_other(
    node: PolicyNode,
) -> None:
    guests = [node.container(core=core) for core in ("30", "70")]
    turns = turns_of(node, guests, kernel_us=1000, ahead=16)
    assert (parts(turns, "c0"), parts(turns, "c1")) == ([0.3, 0.7, 0], [0.7, 0.3, 0])
    assert turns.lost_ns == sum(of.lost_ns for of in turns.of.values()) < ERROR * NS
    worked = sorted((of.held_ns - of.lost_ns) / NS for of in turns.of.values())
    assert worked == pytest.approx(work_on_gpu(node), abs=ERROR)


def test_fixed_containers_that_leave_time_wait_for_their_shares(node: PolicyNode) -> None:
    guests = [node.container(core="30"), node.container(core="30")]
    turns = turns_of(node, guests, kernel_us=1000, ahead=16)
    assert (parts(turns, "c0"), parts(turns, "c1")) == ([0.3, 0.3, 0.4], [0.3, 0.3, 0.4])


def test_a_container_that_has_the_gpu_to_itself_takes_no_turns(node: PolicyNode) -> None:
    alone, _ = node.container(core="30", policy="elastic"), node.container(core="30")
    node.shares_on(node.clock(1), [alone], 1)
    (turns,) = turn_figures.read(node.state_dir).values()
    assert (turns.lost_ns, set(turns.of)) == (0, {"c0", "c1"})
    # It waits once, for its first turn.
    assert [of.held_ns + of.waited_for_share_ns for of in turns.of.values()] == [0, 0]
    assert turns.of["c0"].waited_for_turn_ns < ERROR * NS


def test_figures_of_an_ended_container_are_removed_and_its_lost_time_stays(
    built: None, keeper: Callable[[], None], tenants: Tenants
) -> None:
    for id in ("stays", "ends"):
        tenants.add_record(id)
    keeper()
    until(lambda: set(figures(tenants).of) == {"stays", "ends"})
    with tenants.ledger:
        tenants.ledger.remove("ends")
    until(lambda: set(figures(tenants).of) == {"stays"})
    # It may have been alone until the other was added.
    assert figures(tenants).of["stays"]._replace(free_ns=0) == Turns(0, 0, 0, 0, 0, 0)


def test_a_container_that_does_not_let_its_queue_end_is_an_event(
    built: None, keeper: Callable[[], None], tenants: Tenants
) -> None:
    for id, marks in (("stuck", BUSY | IN_WAIT), ("waits", WANTS)):
        tenants.add_record(id)
        tenants.uses(id)
        mark(tenants, id, marks)
    keeper()
    (event,) = until(lambda: list(events.read(tenants.state_dir)))
    text = "it does not let its GPU queue end; for 5 s others wait 5 ms for its queue at most"
    assert event.pop("time") == pytest.approx(time.time(), abs=60)
    assert event == {
        "from": "vcuda-turn-keeper",
        "kind": events.TURN_OVERRUN,
        "allocation": "stuck",
        "text": text,
        "gpu": "GPU-0",
    }
    assert EventCounts(tenants.state_dir).read().kinds == {events.TURN_OVERRUN: 1}
    until(lambda: word_of(tenants, "waits") in (OPEN, HELD))
    # The other one has no turn, so the keeper was patient for a moment only.
    until(lambda: figures(tenants).of["waits"].waited_for_turn_ns >= 5 * 10**7)


def test_a_new_keeper_goes_on_counting(
    built: None, keeper: Callable[[], None], tenants: Tenants
) -> None:
    at = {name: at for name, at, _ in layout.offsets()}
    for id in ("before", "beside"):
        tenants.add_record(id)
    with open(f"{tenants.ledger.containers}/before/limits", "r+b", 0) as page:
        page.seek(at["limits.gpu"] + at["limits_gpu.turn_held_ns"])
        page.write(struct.pack("=QQ", 7 * 10**9, 8 * 10**9))
    keeper()
    until(lambda: len(figures(tenants).of) == 2)
    # Why it waited under an earlier keeper is not known.
    assert figures(tenants).of["before"][:2] == (7 * 10**9, 0)


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Tenants]:
    made = Tenants(str(tmp_path))
    yield made
    made.close()


@pytest.fixture
def keeper(tenants: Tenants) -> Iterator[Callable[[], None]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        command = [TURN_KEEPER, tenants.state_dir, str(os.getpid())]
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))

    yield start
    for process in started:
        process.kill()
        process.wait()


def figures(tenants: Tenants) -> GpuTurns:
    return turn_figures.read(tenants.state_dir).get("GPU-0", GpuTurns(0, 0, 0, {}))


def word_of(tenants: Tenants, id: str) -> int:
    with open(f"{tenants.ledger.containers}/{id}/limits", "rb") as page:
        return page_reader.read_limits(page.read()).gpus[0].turn & STATE


def mark(tenants: Tenants, id: str, marks: int) -> None:
    """Write the marks of the container's first process for the first GPU."""
    at = {name: at for name, at, _ in layout.offsets()}
    with open(tenants.page(id), "r+b", 0) as page:
        page.seek(at["usage.slot"] + at["usage_slot.turn_marks"])
        page.write(marks.to_bytes(8, "little"))


def test_a_container_that_moves_is_a_tenant_of_its_new_gpu(node: PolicyNode) -> None:
    """`vcuda move` has the page name the new GPU, then the record."""
    node.container(core="30")
    old, new = "GPU-old", node.host.gpus[0].uuid
    page = f"{node.ledger.containers}/c0/limits"

    def name_gpu(uuid: str) -> None:
        limits_in_place.rename_gpus(page, [uuid])
        with node.ledger:
            record = node.ledger.get("c0")
            assert record
            shares = [share.replaced(uuid=uuid) for share in record.shares]
            node.ledger.record(record.replaced(shares=shares))

    def tenants() -> dict[str, list[str]]:
        return {gpu: list(of.of) for gpu, of in turn_figures.read(node.state_dir).items() if of.of}

    name_gpu(old)
    keeper = subprocess.Popen([TURN_KEEPER, node.state_dir, str(os.getpid())])
    try:
        until(lambda: tenants() == {old: ["c0"]}, lambda: str(tenants()))
        name_gpu(new)
        until(lambda: tenants() == {new: ["c0"]}, lambda: str(tenants()))
    finally:
        keeper.terminate()
        keeper.wait(10)
