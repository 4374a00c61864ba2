"""`vcuda suspend` and `vcuda resume` with processes on the software GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.samples import GIB
from support.softgpu_host import BUILT, PRELUDE
from support.suspend_kills import by_user, states_of
from support.suspended import MIB, Node, answer_of, until
from vcuda_hook.cli import main
from vcuda_hook.suspend import control, drive, places, steps
from vcuda_oci.ledger import events, unhealthy
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import layout

# Holds managed memory, which a checkpoint refuses.
MANAGED = """
context = start()
memory = ok(cuda.cuMemAllocManaged(8 << 20, 1))
say(pid=os.getpid())
for line in sys.stdin:
    say(answer=cuda.cuMemFree(memory)[0].name)
"""
# Has a kernel on the GPU that ends in an hour.
BUSY = """
context = start()
spin(kernel(b"spin"), 3_600_000_000_000)
say(pid=os.getpid())
for line in sys.stdin:
    say(allocated=int(ok(cuda.cuMemAlloc(1 << 20))) > 0)
"""

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

# Has opened the memory of another process, which ends with this one's pipe.
EXPORTER = (
    PRELUDE
    + """
context = start()
handle = ok(cuda.cuIpcGetMemHandle(ok(cuda.cuMemAlloc(4 << 20))))
import ctypes; print(ctypes.string_at(handle.getPtr(), 64).hex(), flush=True)
sys.stdin.read()
"""
)
OPENS = f"""
import ctypes, subprocess
context = start()
other = subprocess.Popen([sys.executable, "-c", {EXPORTER!r}], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
handle = cuda.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(other.stdout.readline()), 64)
memory = ok(cuda.cuIpcOpenMemHandle(handle, 1))
say(pid=os.getpid())
for line in sys.stdin:
    say(answer=cuda.cuIpcCloseMemHandle(memory)[0].name)
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.end()


def trim_asked_at() -> int:
    return {name: at for name, at, _ in layout.offsets()}["limits_gpu.trim_asked"]


def kinds(node: Node, id: str) -> list[str]:
    return [event["kind"] for event in events.read(node.ledger.state_dir, id)]


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
    on = node.vcuda("resume", "box")
    assert (on.returncode, on.stderr) == (0, "")
    assert on.stdout.startswith("box is running: ")
    assert (node.step("box"), node.used()) == (None, before)
    assert box.all_work()
    again = node.vcuda("resume", "box", "--json")
    assert json.loads(again.stdout) == [
        {"id": "box", "changed": False, "error": None, "bytes": {}, "seconds": 0.0, "lost": []}
    ]
    assert kinds(node, "box") == ["suspended", "resumed"]


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
    assert until(20, lambda: node.step("box") == "waiting")
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
    """The neighbour does what the shim does: tests/shim/test_shim_room.py."""
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
    assert second.all_work()
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
    assert until(20, lambda: node.step("large") == "waiting")
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


def test_what_the_driver_would_refuse_is_refused_before_anything_is_locked(node: Node) -> None:
    node.box("box", 1)
    uuid = node.facts.gpus[0].uuid
    held = node.record("box")
    with node.ledger:
        managed = [GpuShare(uuid, GIB, 10, managed=True)]
        node.ledger.record(held.replaced(shares=managed))
    refused = node.vcuda("suspend", "box")
    assert (refused.returncode, refused.stderr) == (
        1,
        f"vcuda: box: its memory of {uuid} is managed, which the driver cannot take off; set "
        "memory-overcommit to 1 and start the container again\n",
    )
    with node.ledger:
        node.ledger.record(held.replaced(isolation="mps"))
    refused = node.vcuda("suspend", "box")
    assert refused.stderr == (
        "vcuda: box: is under MPS, and the driver takes no program of an MPS server off; use "
        "isolation turns\n"
    )
    node.runtime.set_state("box", "paused", pid=node.boxes[0].processes[0].pid)
    with node.ledger:
        node.ledger.record(held)
    refused = node.vcuda("suspend", "box", "missing")
    assert refused.stderr.startswith("vcuda: missing: no allocation of this id or name;")
    refused = node.vcuda("suspend", "box")
    assert refused.stderr == "vcuda: box: its container is paused; unpause it first\n"
    assert (node.step("box"), kinds(node, "box")) == (None, [])
    assert node.boxes[0].all_work()


@pytest.mark.parametrize(
    ("program", "reason", "answer"),
    [
        (MANAGED, "the driver cannot checkpoint process", {"answer": "CUDA_SUCCESS"}),
        (OPENS, "the driver cannot checkpoint process", {"answer": "CUDA_SUCCESS"}),
        (BUSY, "has work on the GPU that did not end", {"allocated": True}),
    ],
    ids=["managed memory", "shared memory", "a long kernel"],
)
def test_a_process_that_cannot_leave_the_gpu_leaves_all_at_work(
    node: Node, monkeypatch: pytest.MonkeyPatch, program: str, reason: str, answer: Any
) -> None:
    monkeypatch.setattr(drive, "LOCK_SECONDS", 1.0)
    box = node.box("box", 2)
    odd = box.start_program([sys.executable, "-c", PRELUDE + program])
    answer_of(odd)
    try:
        with pytest.raises(VcudaError) as refused:
            control.suspend(node.ledger, node.facts, "box")
        assert reason in str(refused.value)
        assert "it works on" in str(refused.value)
        assert (node.step("box"), kinds(node, "box")) == (None, ["suspend-failed"])
        assert box.all_work()
        assert odd.stdin
        odd.stdin.write("on\n")
        odd.stdin.flush()
        assert answer_of(odd) == answer
    finally:
        odd.kill()
        odd.communicate()


def order(node: Node, command: str, *words: str) -> None:
    """Run `softgpu fail` or `softgpu heal`."""
    subprocess.run([BUILT / "softgpu", command, node.gpu.root, *words], check=True)


def test_gpu_under_mps_refuses_and_all_processes_work_on(tmp_path: Path) -> None:
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "1", "--mps")
    try:
        box = node.box("box", 2)
        refused = node.vcuda("suspend", "box")
        assert refused.returncode == 1
        assert "it works on; managed memory, MIG, MPS and" in refused.stderr
        assert (node.step("box"), kinds(node, "box")) == (None, ["suspend-failed"])
        assert box.all_work()
    finally:
        node.end()


@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore", "unlock"])
def test_process_that_the_driver_gives_up_is_reported_and_others_work(
    node: Node, step: str
) -> None:
    box = node.box("box", 3)
    first = box.start_program(["sleep", "1000"])  # none of those that may be given up
    node.runtime.set_state("box", "running", pid=first.pid)
    verb = "suspend" if step in ("lock", "checkpoint") else "resume"
    if verb == "resume":
        assert node.vcuda("suspend", "box").returncode == 0
    order(node, "fail", "--give-up", step)
    done = node.vcuda(verb, "box")
    assert done.returncode == 1
    assert node.step("box") is None
    (text,) = (
        event["text"]
        for event in events.read(node.ledger.state_dir, "box")
        if event["kind"] == "lost"
    )
    assert "the driver has given up process" in text
    (lost,) = (each for each in box.processes if f"process {each.pid};" in text)
    box.processes.remove(lost)
    assert box.all_work()
    lost.kill()
    lost.communicate()
    assert node.vcuda("suspend", "box").returncode == 0
    assert node.vcuda("resume", "box").returncode == 0
    assert box.all_work()
    box.processes.append(first)  # ends with the others


@pytest.mark.parametrize("step", ["Lock", "Checkpoint", "Restore", "Unlock", "GetState"])
def test_driver_that_does_not_answer_is_left_and_completed_after(
    node: Node, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(drive, "LOCK_SECONDS", 1.0)
    monkeypatch.setattr(places, "BACK_SECONDS", 2.0)
    box = node.box("box", 2)
    is_resume = step in ("Restore", "Unlock")
    if is_resume:
        control.suspend(node.ledger, node.facts, "box")
    order(node, "fail", "--call", f"cuCheckpointProcess{step}", "--hang")
    with pytest.raises(VcudaError) as hung:
        if is_resume:
            control.resume(node.ledger, node.facts, "box", 1, 5)
        else:
            control.suspend(node.ledger, node.facts, "box", seconds=2)
    assert "no answer of the driver" in str(hung.value)
    order(node, "heal")
    assert until(20, lambda: settled(node))
    if node.step("box"):
        assert node.vcuda("resume", "box").returncode == 0
    assert node.step("box") is None
    assert box.all_work()


def settled(node: Node) -> bool:
    """Whether no step of the container is left to complete, after a repair."""
    control.repair(node.ledger, node.facts, "box")
    return node.step("box") in (None, "suspended")


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
    sleeper = box.start_program(["sleep", "60"])
    node.runtime.set_state("box", "running", pid=sleeper.pid)
    try:
        assert until(10, lambda: node.vcuda("suspend", "box").returncode == 0)
        assert node.record("box").resident == []
        assert node.vcuda("resume", "box").returncode == 0
        assert node.step("box") is None
    finally:
        sleeper.kill()
        sleeper.communicate()


@pytest.mark.parametrize("verb", ["drain 0 --yes", "undrain 0", "rebalance --core 50 --yes"])
def test_only_root_drains_and_rebalances(
    node: Node, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.main(["--config", node.config, *verb.split()]) == 1
    name = verb.split()[0]
    assert capsys.readouterr().err == f"vcuda: vcuda {name}: needs root; run it as root\n"
    assert not os.path.exists(unhealthy.drained_in(node.ledger.state_dir))


@pytest.mark.parametrize("verb", ["suspend", "resume", "move --gpu 1"])
def test_only_root_suspends_and_resumes(
    node: Node, verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    box = node.box("box", 1)
    if verb == "resume":
        assert node.vcuda("suspend", "box").returncode == 0
    before = node.step("box")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main.main(["--config", node.config, *verb.split(), "box"]) == 1
    name = verb.split()[0]
    assert capsys.readouterr().err == f"vcuda: vcuda {name}: needs root; run it as root\n"
    monkeypatch.undo()
    assert node.step("box") == before
    page = f"{node.ledger.containers}/box/limits"
    for path in (page, node.ledger.allocations, f"{node.ledger.containers}/box/suspend.lock"):
        if os.path.exists(path):
            assert os.stat(path).st_uid == 0
            assert not os.stat(path).st_mode & 0o022, path
    if verb == "resume":
        assert node.vcuda("resume", "box").returncode == 0
    assert box.all_work()


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
