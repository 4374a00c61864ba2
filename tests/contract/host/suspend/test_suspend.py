"""`vcuda suspend` and `vcuda resume` with processes on the software GPU."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from support.ledger.samples import GIB
from support.softgpu.softgpu_host import PRELUDE
from support.suspend.suspend_kills import by_user, states_of
from support.suspend.suspended import MIB, Node, answer_of, node
from support.waiting import until
from vcuda_hook.checkpoint import steps
from vcuda_hook.suspend import control
from vcuda_oci.ledger import events
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import BY_ROTATION
from vcuda_oci.pages import layout
from vcuda_oci.placement.rules import Rules

__all__ = ["node"]


# Leaves 64 MiB of 8 GiB, in no share.
FILLS = """
context = start()
ok(cuda.cuMemAlloc((8 << 30) - (64 << 20)))
say(full=True)
sys.stdin.readline()
"""


# Keeps all but 65 MiB of 8 GiB until the byte AT of its limits page changes.
KEEPS = """
context = start()
memory = ok(cuda.cuMemAlloc((8 << 30) - (65 << 20)))
say(keeps=True)
asked = 0
while not asked:
    time.sleep(0.01)
    with open(sys.argv[1], "rb") as page:
        asked = page.read()[int(sys.argv[2])]
ok(cuda.cuMemFree(memory))
say(asked=asked)
sys.stdin.read()
"""


def trim_asked_at() -> int:
    return {name: at for name, at, _ in layout.offsets()}["limits_gpu.trim_asked"]


def test_a_container_leaves_the_gpu_and_comes_back_with_its_memory(node: Node) -> None:
    box = node.box("box", 2, 64 * MIB)
    assert box.all_work()
    before = node.used()
    assert before >= 128 * MIB
    off = node.vcuda("suspend", "box")
    assert (off.returncode, off.stderr) == (0, "")
    assert off.stdout.startswith("box is suspended: ")
    assert (node.step("box"), node.used()) == ("suspended", 0)
    again = node.vcuda("suspend", "bo")
    assert (again.returncode, again.stdout) == (0, "box is suspended already\n")
    shown = json.loads(node.vcuda("ps", "--json").stdout)
    assert [(each["status"], each["memory_used_bytes"]) for each in shown] == [("suspended", 0)]
    assert re.search(r"suspended \d+s, 0 B on host", node.vcuda("top", "--once").stdout)
    assert "in host memory, by order" in node.vcuda("events").stdout
    on = node.vcuda("resume", "box")
    assert (on.returncode, on.stderr) == (0, "")
    assert on.stdout.startswith("box is running: ")
    assert (node.step("box"), node.used()) == (None, before)
    assert box.all_work()
    again = node.vcuda("resume", "box", "--json")
    assert json.loads(again.stdout) == [
        {"id": "box", "changed": False, "error": None, "bytes": {}, "seconds": 0.0, "lost": []}
    ]
    assert node.kinds("box") == ["suspended", "resumed"]


def test_resume_waits_for_room_and_gets_it_when_another_is_suspended(node: Node) -> None:
    box = node.box("box", 1)
    assert node.vcuda("suspend", "box").returncode == 0
    node.box("other", 1, memory=8 * GIB, core=60)
    late = node.vcuda("resume", "box", "--timeout", "0")
    assert (late.returncode, late.stderr) == (
        1,
        f"vcuda: box: there is no room: 40 % and 0.0 GiB of {node.facts.gpus[0].uuid} are free; "
        "50 % and 4.0 GiB are needed; end or suspend another container\n",
    )
    assert node.step("box") == "suspended"
    waits = node.start_vcuda("resume", "box", "--timeout", "60")
    until(lambda: node.step("box") == "waiting")
    assert node.vcuda("suspend", "other").returncode == 0
    assert waits.wait(30) == 0
    waits.communicate()
    assert node.step("box") is None
    assert box.all_work()


def test_memory_that_others_took_beside_their_shares_costs_no_process(node: Node) -> None:
    box = node.box("box", 2, 64 * MIB)
    assert node.vcuda("suspend", "box").returncode == 0
    uuid = node.facts.gpus[0].uuid
    needed = node.record("box").suspension
    assert needed and needed.needed[uuid] >= 128 * MIB
    stranger = node.gpu.start_client(FILLS)
    answer_of(stranger)
    late = node.vcuda("resume", "box", "--timeout", "0")
    assert (late.returncode, late.stderr) == (
        1,
        f"vcuda: box: {uuid} has 0.06 GiB free, its processes need 0.12 GiB; it stays suspended; "
        "end what uses the GPU beside its shares: nvidia-smi\n",
    )
    assert node.step("box") == "suspended"
    stranger.kill()
    stranger.communicate()
    assert node.vcuda("resume", "box", "--timeout", "0").returncode == 0
    assert node.step("box") is None
    assert box.all_work()


def test_a_neighbours_pool_makes_room_for_a_container_that_comes_back(node: Node) -> None:
    """The neighbour does what the shim does: tests/shim/memory/test_shim_room.py."""
    box = node.box("box", 1, 64 * MIB)
    assert node.vcuda("suspend", "box").returncode == 0
    neighbour = node.box("neighbour", 1, MIB)
    at = layout.LIMITS_HEAD_SIZE + trim_asked_at()
    program = [sys.executable, "-c", PRELUDE + KEEPS, f"{node.ledger.containers}/neighbour/limits"]
    process = neighbour.start_program([*program, str(at)])
    neighbour.bystanders.append(process)
    assert answer_of(process) == {"keeps": True}
    assert node.vcuda("resume", "box", "--timeout", "0").returncode == 0
    assert (node.step("box"), answer_of(process)) == (None, {"asked": 1})
    assert box.all_work()


def test_container_that_filled_the_gpu_comes_back_to_it(tmp_path: Path) -> None:
    node = Node(tmp_path, "--memory", "256MiB", "--gpus", "1")
    try:
        box = node.box("box", 1, 248 * MIB, memory=256 * MIB)
        assert node.vcuda("suspend", "box").returncode == 0
        assert node.vcuda("resume", "box", "--timeout", "0").returncode == 0
        assert box.all_work()
    finally:
        node.end()


def test_container_without_host_memory_for_the_copy_works_on(node: Node) -> None:
    """The driver's copy would have it killed by its own memory limit."""
    box = node.box("box", 2, 64 * MIB)
    folder = box.limit_memory(32 * MIB)
    refused = node.vcuda("suspend", "box")
    assert (refused.returncode, node.step("box")) == (1, None)
    assert refused.stderr.startswith(f"vcuda: box: {folder} has 0.0")
    assert refused.stderr.endswith("needed; give the container a larger memory limit\n")
    assert box.all_work()
    box.limit_memory(512 * MIB)
    assert node.vcuda("suspend", "box").returncode == 0


def test_suspended_containers_keep_no_more_than_their_bound(node: Node) -> None:
    with open(node.config, "a", encoding="ascii") as file:
        file.write('suspend-memory = "100MiB"\n')
    first, second = node.box("first", 1, 64 * MIB), node.box("second", 1, 64 * MIB)
    assert node.vcuda("suspend", "first").returncode == 0
    refused = node.vcuda("suspend", "second")
    assert (refused.returncode, refused.stderr) == (
        1,
        "vcuda: second: 0.06 GiB of suspend-memory 0.09 GiB are taken, 0.06 GiB are needed; "
        "resume or end another suspended container\n",
    )
    assert (second.all_work(), node.kinds("second")) == (True, [])
    # No operator is told of this one.
    with pytest.raises(VcudaError, match="suspend-memory"):
        control.suspend(node.ledger, node.facts, "second", Rules(host_bytes=100 * MIB), BY_ROTATION)
    assert node.kinds("second") == [events.SUSPEND_FAILED]
    assert node.vcuda("resume", "first").returncode == 0
    assert node.vcuda("suspend", "second").returncode == 0
    assert first.all_work()


def test_processes_that_their_user_has_taken_off_are_left_so(node: Node) -> None:
    box = node.box("box", 3)
    working, locked, off = box.processes
    by_user(box, locked, steps.LOCK)
    by_user(box, off, steps.LOCK, steps.CHECKPOINT)
    before = node.used()
    assert node.vcuda("suspend", "box").returncode == 0
    assert (node.step("box"), node.used()) == ("suspended", 0)
    assert node.vcuda("resume", "box").returncode == 0
    assert (node.step("box"), node.used()) == (None, before)
    states = states_of(box, [each.pid for each in box.processes])
    assert list(states.values()) == [steps.RUNNING, steps.LOCKED, steps.CHECKPOINTED]
    assert box.works(working)
    by_user(box, off, steps.RESTORE, steps.UNLOCK)
    by_user(box, locked, steps.UNLOCK)
    assert box.all_work()


def test_containers_come_back_in_the_order_in_which_they_began_to_wait(node: Node) -> None:
    for id, core in (("large", 80), ("small", 30)):
        node.box(id, 1, core=core)
        assert node.vcuda("suspend", id).returncode == 0
    node.box("other", 1, core=60)
    first = node.start_vcuda("resume", "large")
    until(lambda: node.step("large") == "waiting")
    # There is room for the small one, but it came second.
    second = node.vcuda("resume", "small", "--timeout", "1")
    assert second.returncode == 1
    assert "large waited for room before" in second.stderr
    first.kill()
    first.communicate()
    # A killed program waits no more.
    assert node.vcuda("resume", "small", "--timeout", "0").returncode == 0
    assert node.vcuda("suspend", "large").stdout == "large is suspended already\n"
    assert node.step("large") == "suspended"


def test_a_process_that_is_killed_while_suspended_holds_up_no_other(node: Node) -> None:
    box = node.box("box", 3)
    assert node.vcuda("suspend", "box").returncode == 0
    dead = box.processes.pop()
    dead.kill()
    dead.communicate()
    assert node.vcuda("resume", "box").returncode == 0
    assert node.step("box") is None
    assert box.all_work()


def test_paused_container_is_not_resumed_and_stays_suspended(node: Node) -> None:
    box = node.box("box", 1)
    assert node.vcuda("suspend", "box").returncode == 0
    node.runtime.set_state("box", "paused", pid=box.processes[0].pid)
    refused = node.vcuda("resume", "box")
    assert refused.stderr == "vcuda: box: its container is paused; unpause it first\n"
    assert (node.step("box"), node.record("box").resident) == ("suspended", [])
    assert node.vcuda("suspend", "box").stdout == "box is suspended already\n"
    node.runtime.set_state("box", "running", pid=box.processes[0].pid)
    assert node.vcuda("resume", "box").returncode == 0
    assert box.all_work()


def test_a_container_without_processes_on_the_gpu_only_gives_up_its_share(node: Node) -> None:
    box = node.box("box", 1)
    box.processes[0].kill()
    box.processes[0].communicate()
    box.processes = []
    sleeper = box.start_idle()
    node.runtime.set_state("box", "running", pid=sleeper.pid)
    try:
        until(lambda: node.vcuda("suspend", "box").returncode == 0)
        assert node.record("box").resident == []
        assert node.vcuda("resume", "box").returncode == 0
        assert node.step("box") is None
    finally:
        sleeper.kill()
        sleeper.communicate()


def test_two_programs_at_once_leave_one_suspended_container(node: Node) -> None:
    box = node.box("box", 2)
    both = [node.start_vcuda("suspend", "box") for _ in range(2)]
    out = sorted(each.communicate()[0].split(":")[0] for each in both)
    assert [each.returncode for each in both] == [0, 0]
    assert out == ["box is suspended", "box is suspended already\n"]
    both = [node.start_vcuda(verb, "box") for verb in ("resume", "suspend")]
    for each in both:
        each.communicate()
    assert node.vcuda("resume", "box").returncode == 0
    assert node.step("box") is None
    assert box.all_work()
