"""Checkpoints that programs of a container make: what is off the GPU is not charged."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from shim.conftest import DriverRoot
from shim.cuda_program import START
from support.gpu.guest import GIB, MIB, PYTHON, WORKLOAD, Guest, share
from support.waiting import until
from vcuda_oci.pages import layout

# Holds memory with a pattern, and checks it at each line of input.
HOLDER = (
    START
    + """
MIB = 1 << 20
memory = must(cu.cuMemAlloc(600 * MIB))
must(cu.cuMemsetD32(memory, 4711, 150 * MIB))
print(os.getpid(), flush=True)
for line in sys.stdin:
    back = bytearray(4)
    must(cu.cuMemcpyDtoH(back, int(memory) + 599 * MIB, 4))
    print(int.from_bytes(back, "little"), flush=True)
"""
)
# Calls the driver for the process PID, and keeps what it allocates.
TOOL = (
    START
    + """
MIB = 1 << 20
def call(step, pid):
    return getattr(cu, "cuCheckpointProcess" + step)(pid, None)[0].name
def state(pid):
    return int(must(cu.cuCheckpointProcessGetState(pid)))
pid = int(sys.argv[1]) if len(sys.argv) > 1 else os.getpid()
"""
)
OFF = TOOL + "print(json.dumps([call(step, pid) for step in ('Lock', 'Checkpoint')]))"
ON = TOOL + "print(json.dumps([call(step, pid) for step in ('Restore', 'Unlock')]))"
OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"


class Holder:
    def __init__(self, guest: Guest) -> None:
        self.guest = guest
        self.process = guest.start(PYTHON, "-c", HOLDER, stdin=subprocess.PIPE)
        self.pid = self._read()

    def _read(self) -> str:
        assert self.process.stdout
        return str(self.process.stdout.readline()).strip()

    def is_intact(self) -> bool:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._read() == "4711"

    def used(self) -> tuple[int, int]:
        """MiB that are charged, and that are off the GPU."""
        gpu = self.guest.read_usage().gpus[0]
        return gpu.held_bytes // MIB, gpu.off_bytes // MIB


@pytest.fixture
def guest(host: DriverRoot, new_guest: Callable[..., Guest]) -> Guest:
    return new_guest(share(host.uuids[0], GIB))


@pytest.fixture
def holder(guest: Guest) -> Iterator[Holder]:
    made = Holder(guest)
    yield made
    made.process.kill()
    made.process.communicate()


def test_memory_off_the_gpu_is_free_for_others_until_it_comes_back(holder: Holder) -> None:
    guest = holder.guest
    assert holder.used() == (600, 0)
    assert guest.python(OFF, holder.pid) == [OK, OK]
    assert holder.used() == (0, 600)
    code = TOOL + (
        "first = must(cu.cuMemAlloc(600 * MIB))\n"
        "seen = [must(cu.cuMemGetInfo())[0] // MIB, call('Restore', pid), state(pid)]\n"
        "must(cu.cuMemFree(first))\n"
        "print(json.dumps([*seen, call('Restore', pid), state(pid), call('Unlock', pid)]))"
    )
    assert guest.python(code, holder.pid) == [424, FULL, 2, OK, 1, OK]
    assert guest.read_usage().gpus[0].refusals == 1
    assert holder.used() == (600, 0)
    assert holder.is_intact()


def test_a_process_that_checkpoints_itself_is_charged_when_it_comes_back(guest: Guest) -> None:
    code = TOOL + (
        "import subprocess\n"
        "memory = must(cu.cuMemAlloc(600 * MIB))\n"
        "def other(mib):\n"
        "    program = sys.argv[2] + f'print(cu.cuMemAlloc({mib} * MIB)[0].name)'\n"
        "    return subprocess.check_output([sys.executable, '-c', program], text=True).strip()\n"
        "pid = os.getpid()\n"
        "seen = [other(600), call('Lock', pid), call('Checkpoint', pid), other(1000)]\n"
        "seen += [call('Restore', pid), call('Unlock', pid), other(600)]\n"
        "print(json.dumps([*seen, must(cu.cuMemGetInfo())[0] // MIB]))"
    )
    assert guest.python(code, "0", TOOL) == [FULL, OK, OK, OK, OK, OK, FULL, 424]


def test_memory_that_a_thread_waits_for_meanwhile_counts_at_the_return(guest: Guest) -> None:
    code = TOOL + (
        "import threading, time\n"
        "memory = must(cu.cuMemAlloc(600 * MIB))\n"
        "def more():\n"
        "    must(cu.cuCtxSetCurrent(context))\n"
        "    must(cu.cuMemAlloc(300 * MIB))\n"
        "call('Lock', pid), call('Checkpoint', pid)\n"
        "thread = threading.Thread(target=more)\n"
        "thread.start()\n"
        "time.sleep(0.2)\n"
        "seen = [call('Restore', pid), call('Unlock', pid)]\n"
        "thread.join()\n"
        "print(json.dumps([*seen, must(cu.cuMemGetInfo())[0] // MIB]))"
    )
    assert guest.python(code) == [OK, OK, 124]


@pytest.mark.parametrize("step", ["checkpoint", "restore"])
def test_a_tool_killed_while_the_driver_copies_leaves_what_is_on_the_gpu_charged(
    new_host: Callable[..., DriverRoot], new_guest: Callable[..., Guest], step: str
) -> None:
    host = new_host(f"--{step}-rate", "600MiB/s")
    guest = new_guest(share(host.uuids[0], GIB), on=host)
    holder = Holder(guest)
    try:
        before = ["Lock", "Checkpoint"][: 1 if step == "checkpoint" else 2]
        code = TOOL + (
            f"assert [call(step, pid) for step in {before}]\n"
            f"print('now', flush=True)\n"
            f"call({step.capitalize()!r}, pid)"
        )
        tool = guest.start(PYTHON, "-c", code, holder.pid)
        assert tool.stdout and tool.stdout.readline() == "now\n"
        time.sleep(0.3)
        tool.kill()
        tool.communicate()
        after = ["Restore", "Unlock"][0 if step == "checkpoint" else 1 :]
        code = TOOL + f"print(json.dumps([state(pid), *(call(step, pid) for step in {after})]))"
        assert holder.used() == (600, 0)
        assert guest.python(code, holder.pid) == [len(after), *[OK] * len(after)]
        assert holder.is_intact()
        assert holder.used() == (600, 0)
    finally:
        holder.process.kill()
        holder.process.communicate()


# Takes 600 MiB and frees them again, all the time; says how often that worked.
TAKES = (
    TOOL
    + """
import select, time
got = 0
print("takes", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    answer = cu.cuMemAlloc(600 * MIB)
    if answer[0] == cu.CUresult.CUDA_SUCCESS:
        got += 1
        time.sleep(0.01)  # cuMemGetInfo's figure is as old as a tick of the kernel
        must(cu.cuMemFree(answer[1]))
    time.sleep(0.02)  # a restore tries once
print(got, flush=True)
"""
)
# Looks all the time how much of the GPU is in use; says how much it was at most.
WATCHES = (
    TOOL
    + """
import select
most = 0
print("watches", flush=True)
while not select.select([sys.stdin], [], [], 0.0005)[0]:
    free, total = must(cu.cuMemGetInfo())
    most = max(most, total - free)
print(most // MIB, flush=True)
"""
)


def test_tools_killed_at_random_moments_break_no_limit_and_lose_no_process(
    new_host: Callable[..., DriverRoot], new_guest: Callable[..., Guest]
) -> None:
    host = new_host("--checkpoint-rate", "30GiB/s", "--restore-rate", "30GiB/s")  # 20 ms
    guest = new_guest(share(host.uuids[0], GIB), on=host)
    whole = new_guest(share(host.uuids[0], 16 * GIB), on=host)
    holder = Holder(guest)
    others = [
        guest.start(PYTHON, "-c", TAKES, stdin=subprocess.PIPE),
        whole.start(PYTHON, "-c", WATCHES, stdin=subprocess.PIPE),
    ]
    chosen, killed, rounds, intact = random.Random(18), 0, 0, 0
    try:
        for other in others:
            assert other.stdout and other.stdout.readline(), other.communicate()
        while rounds < 12 or killed < 12:  # some end before they are killed
            rounds += 1
            for steps in (["lock", "checkpoint"], ["restore", "unlock"]):
                tool = guest.start(WORKLOAD, "checkpoint", holder.pid, *steps)
                time.sleep(chosen.uniform(0, 0.08))
                tool.kill()
                killed += tool.wait() == -signal.SIGKILL
                tool.communicate()
                time.sleep(0.03)
            for step in ("restore", "unlock"):
                bring(guest, holder.pid, step)
            intact += holder.is_intact()
        # A loaded machine may have killed each tool before its checkpoint.
        bring(guest, holder.pid, "lock")
        bring(guest, holder.pid, "checkpoint")
        time.sleep(0.2)
        for step in ("restore", "unlock"):
            bring(guest, holder.pid, step)
        got, most = (int(other.communicate("\n")[0]) for other in others)
    finally:
        for process in (holder.process, *others):
            process.kill()
            process.communicate()
    assert (intact, got > 0) == (rounds, True)
    assert most == 600


def bring(guest: Guest, pid: str, step: str) -> None:
    """Take a step, where it is due, as soon as there is room."""
    end = time.monotonic() + 10
    while True:
        tool = guest.start(WORKLOAD, "checkpoint", pid, step)
        answer = tool.communicate()[0]
        if "CUDA_SUCCESS" in answer or "CUDA_ERROR_ILLEGAL_STATE" in answer:
            return
        assert FULL in answer and time.monotonic() < end, answer


def test_a_dead_process_leaves_no_mark_for_the_next_one(holder: Holder) -> None:
    guest = holder.guest
    assert guest.python(OFF, holder.pid) == [OK, OK]
    holder.process.send_signal(signal.SIGKILL)
    holder.process.communicate()
    next = Holder(guest)
    assert next.used() == (600, 0)
    assert next.is_intact()
    next.process.kill()
    next.process.communicate()


def test_another_process_of_the_same_number_is_not_taken_off(holder: Holder) -> None:
    """The start time tells them apart: here the slot has another one."""
    guest = holder.guest
    at = {name: at for name, at, _ in layout.offsets()}["usage.slot"] + 8
    with open(guest.usage, "r+b", buffering=0) as page:
        page.seek(at)
        page.write((1).to_bytes(8, "little"))
    assert guest.python(OFF, holder.pid) == [OK, OK]
    assert holder.used() == (600, 0)
    assert guest.python(ON, holder.pid) == [OK, OK]
    assert holder.is_intact()


@pytest.mark.parametrize("calls_ask", [False, True], ids=["calls do not ask", "calls ask"])
def test_a_restore_of_a_suspended_container_waits_for_the_host(
    host: DriverRoot, new_guest: Callable[..., Guest], calls_ask: bool
) -> None:
    guest = new_guest(share(host.uuids[0], GIB), calls_ask=calls_ask)
    holder = Holder(guest)
    assert guest.python(OFF, holder.pid) == [OK, OK]
    code = TOOL + "print('ready', flush=True)\nsys.stdin.readline()\nprint(call('Restore', pid))"
    tool = guest.start(PYTHON, "-c", code, holder.pid, stdin=subprocess.PIPE)
    assert tool.stdout and tool.stdout.readline() == "ready\n"
    guest.suspend(layout.UNTIL_CALL)
    assert tool.stdin
    tool.stdin.write("\n")
    tool.stdin.flush()
    until(lambda: guest.read_usage().resume_asked > 0)
    assert tool.poll() is None
    assert holder.used() == (0, 600)
    guest.suspend(layout.AWAKE)
    assert tool.communicate(timeout=20)[0] == f"{OK}\n"
    holder.process.kill()
    holder.process.communicate()


# Executes each line of input.
UNSAVED = (
    START
    + """
import ctypes, subprocess
managed = lambda: must(cu.cuMemAllocManaged(1 << 20, 1))
def opens():
    other = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    handle = cu.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), bytes.fromhex(other.stdout.readline()), 64)
    must(cu.cuIpcCloseMemHandle(must(cu.cuIpcOpenMemHandle(handle, 1))))
    other.communicate()
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""
)
EXPORTER = START + (
    "import ctypes\n"
    "handle = must(cu.cuIpcGetMemHandle(must(cu.cuMemAlloc(1 << 20))))\n"
    "print(ctypes.string_at(handle.getPtr(), 64).hex(), flush=True)\n"
    "sys.stdin.read()"
)


def test_page_tells_what_keeps_a_process_on_the_gpu(guest: Guest) -> None:
    process = guest.start(PYTHON, "-c", UNSAVED, EXPORTER, stdin=subprocess.PIPE)

    def after(line: str) -> tuple[int, int]:
        """Processes with managed memory, and with memory of others, after a line of the program."""
        assert process.stdin
        assert process.stdout
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        page = guest.read_usage()
        return page.managed, page.opened_ipc

    try:
        assert after("first, second = managed(), managed()") == (1, 0)
        assert after("must(cu.cuMemFree(first))") == (1, 0)
        assert after("must(cu.cuMemFree(second))") == (0, 0)
        # With its context it ends.
        assert after("other = must(cu.cuCtxCreate(None, 0, device)); managed()") == (1, 0)
        assert after("must(cu.cuCtxDestroy(other))") == (0, 0)
        assert after("must(cu.cuCtxSetCurrent(context)); must(cu.cuMemAlloc(1 << 20))") == (0, 0)
        assert after("opens()") == (0, 1)
        assert after("managed()") == (1, 1)
    finally:
        process.kill()
        process.communicate()
    # The next process takes its slot.
    assert guest.python(START + "must(cu.cuMemAlloc(1 << 20)); print(1)") == 1
    assert (guest.read_usage().managed, guest.read_usage().opened_ipc) == (0, 0)
