"""What the driver refuses, gives up or does not answer: the container works on."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.ledger.samples import GIB
from support.softgpu.softgpu_host import BUILT, PRELUDE
from support.suspend.suspend_kills import states_of
from support.suspend.suspended import Node, answer_of, node
from support.waiting import until
from vcuda_hook.checkpoint import drive, steps, worker
from vcuda_hook.suspend import control, places, repairs
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import BY_ORDER, BY_ROTATION
from vcuda_oci.pages import layout
from vcuda_oci.placement.rules import Rules

__all__ = ["node"]


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


def test_ended_container_of_a_living_pod_gives_way_to_others(node: Node) -> None:
    node.box("box", 1)
    held = node.record("box")
    with node.ledger:
        rotates = [share.replaced(rotates=True) for share in held.shares]
        node.ledger.record(held.replaced(shares=rotates))
    node.runtime.set_state("box", "stopped", pid=0)
    with pytest.raises(VcudaError, match="its container has ended"):
        control.suspend(node.ledger, node.facts, "box", Rules(), BY_ORDER)
    control.suspend(node.ledger, node.facts, "box", Rules(), BY_ROTATION)
    assert node.record("box").resident == []


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
    assert (node.step("box"), node.kinds("box")) == (None, [])
    assert node.boxes[0].all_work()


MANAGED_LINE = (
    "a process of it has managed memory, which the driver cannot take off; free it "
    "(cuMemAllocManaged), or end the program"
)
IPC_LINE = (
    "a process of it has memory of another one, which driver 580.95.05 cannot take off; end the "
    "program, start it without CUDA IPC, or install driver 610"
)


@pytest.mark.parametrize(
    ("kind", "line"),
    [(layout.UNSAVED_MANAGED, MANAGED_LINE), (layout.UNSAVED_IPC, IPC_LINE)],
    ids=["managed memory", "CUDA IPC"],
)
def test_what_the_page_tells_of_is_refused_before_anything_is_locked(
    node: Node, kind: int, line: str
) -> None:
    """What the shim writes there: tests/shim/memory/test_shim_checkpoints.py."""
    box, other = node.box("box", 1), node.box("other", 1)
    order(node, "fail", "--call", "cuCheckpointProcessLock", "--hang")  # if it were called
    with noted(node, "box", kind):
        refused = node.vcuda("suspend", "box")
        assert (refused.returncode, refused.stderr) == (1, f"vcuda: box: {line}\n")
        assert line in node.vcuda("drain", "0", "--dry-run").stdout
        with node.ledger:
            node.ledger.record(node.record("box").replaced(idle_suspend=60))
        assert f"it cannot be suspended: {line}" in node.vcuda("why", "box").stdout
    order(node, "heal")
    assert (node.step("box"), node.kinds("box")) == (None, [])
    # A page speaks for its own container only, and a process that has ended for none.
    with noted(node, "box", kind):
        assert node.vcuda("suspend", "other").returncode == 0
    assert node.vcuda("suspend", "box").returncode == 0
    assert node.vcuda("resume", "box", "other").returncode == 0
    assert box.all_work() and other.all_work()


@contextlib.contextmanager
def noted(node: Node, id: str, kind: int) -> Iterator[None]:
    """While a process lives, its page tells that it has what the driver cannot take off."""
    at = {name: at for name, at, _ in layout.offsets()}
    word = layout.USAGE_HEAD_SIZE + kind * layout.USAGE_GPU_SIZE + at["usage_gpu.unsaved"]
    fd = os.open(f"{node.ledger.containers}/{id}/usage", os.O_RDWR)
    try:
        os.pwrite(fd, struct.pack("=I", 1), at["usage.slots_used"])
        os.pwrite(fd, struct.pack("=I", 1), word)
        lock = struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE, 1, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)
        yield
    finally:
        os.close(fd)


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
            control.suspend(node.ledger, node.facts, "box", Rules())
        assert reason in str(refused.value)
        assert "it works on" in str(refused.value)
        assert (node.step("box"), node.kinds("box")) == (None, ["suspend-failed"])
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
        assert (node.step("box"), node.kinds("box")) == (None, ["suspend-failed"])
        assert box.all_work()
    finally:
        node.end()


@pytest.mark.parametrize("step", ["lock", "checkpoint", "restore", "unlock"])
def test_process_that_the_driver_gives_up_is_reported_and_others_work(
    node: Node, step: str
) -> None:
    box = node.box("box", 3)
    first = box.start_idle()  # none of those that may be given up
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
        control.suspend(node.ledger, node.facts, "box", Rules())
    order(node, "fail", "--call", f"cuCheckpointProcess{step}", "--hang")
    with pytest.raises(VcudaError) as hung:
        if is_resume:
            control.resume(node.ledger, node.facts, "box", Rules(), 5)
        else:
            control.suspend(node.ledger, node.facts, "box", Rules(), seconds=2)
    assert "no answer of the driver" in str(hung.value)
    order(node, "heal")
    until(lambda: settled(node))
    if node.step("box"):
        assert node.vcuda("resume", "box").returncode == 0
    assert node.step("box") is None
    assert box.all_work()


def test_mps_socket_that_never_answers_holds_up_no_suspension(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = node.box("box", 1)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(f"{tmp_path}/control")
        silent.listen()
        silent.setblocking(False)
        for verb in ("suspend", "resume"):
            assert node.vcuda(verb, "box").returncode == 0
        with pytest.raises(BlockingIOError):
            silent.accept()
    assert box.all_work()


@pytest.mark.parametrize("words", [("suspend", "box"), ("drain", "0", "--yes")], ids=" ".join)
def test_interrupted_verb_leaves_its_container_at_work_without_an_agent(
    node: Node, words: tuple[str, ...]
) -> None:
    box = node.box("box", 2)
    order(node, "fail", "--call", "cuCheckpointProcessCheckpoint", "--hang")
    pids = [each.pid for each in box.processes]
    verb = node.start_vcuda(*words)
    until(lambda: set(states_of(box, pids).values()) == {steps.LOCKED})
    verb.send_signal(signal.SIGINT)
    order(node, "heal")  # the call ends first
    verb.communicate()
    assert (verb.returncode, node.step("box")) == (130, None)
    assert box.all_work()


@pytest.mark.parametrize(
    ("end", "ends"),
    [(signal.SIGKILL, True), (signal.SIGINT, True), (signal.SIGKILL, False)],
    ids=["killed", "interrupted", "killed, the call hangs on"],
)
def test_a_call_of_an_ended_program_ends_before_another_program_calls(
    node: Node, monkeypatch: pytest.MonkeyPatch, end: int, ends: bool
) -> None:
    monkeypatch.setattr(worker, "LEAVE_SECONDS", 60.0 if ends else 1.0)
    box = node.box("box", 2)
    order(node, "fail", "--call", "cuCheckpointProcessLock", "--hang")
    pid = os.fork()
    if pid == 0:
        try:
            control.suspend(node.ledger, node.facts, "box", Rules())
        finally:
            os._exit(0)

    def is_asked() -> bool:
        held = node.record("box").suspension
        return bool(held and held.asked)

    until(is_asked)
    time.sleep(0.3)  # the calls follow
    os.kill(pid, end)
    os.waitpid(pid, 0)
    time.sleep(0.3)
    assert (repairs.repair(node.ledger, node.facts, "box"), node.step("box")) == (
        False,
        "suspending",
    )
    if ends:
        order(node, "heal")
    until(lambda: repairs.repair(node.ledger, node.facts, "box"))
    order(node, "heal")
    assert node.step("box") is None
    assert box.all_work()


def settled(node: Node) -> bool:
    """Whether no step of the container is left to complete, after a repair."""
    repairs.repair(node.ledger, node.facts, "box")
    return node.step("box") in (None, "suspended")
