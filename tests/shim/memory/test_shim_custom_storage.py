"""Checkpoints to custom storage in a container: what is off the GPU is not charged."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest

from shim.conftest import DriverRoot
from support.gpu.guest import MIB, PYTHON, Guest, share
from support.softgpu.custom_storage import HOLDER, STORAGE, VERSION
from support.softgpu.softgpu_host import PRELUDE, answer, first_line, go_on

CALLER = PRELUDE + STORAGE + "pid = int(sys.argv[1])\nretain(0)\n"
BEGUN = "lock(pid)\ninfo = begin('Checkpoint', pid)[1]\n"
LOCKED, FAILED = 1, 3


@pytest.fixture
def guest(new_host: Callable[..., DriverRoot], new_guest: Callable[..., Guest]) -> Guest:
    host = new_host(*VERSION)
    return new_guest(share(host.uuids[0], 12 * MIB), on=host)


@pytest.fixture
def holder(guest: Guest) -> Iterator[subprocess.Popen[str]]:
    process = guest.start(PYTHON, "-c", PRELUDE + HOLDER, stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def used(guest: Guest) -> list[int]:
    """MiB that are charged, and that are off the GPU."""
    gpu = guest.read_usage().gpus[0]
    return [gpu.held_bytes // MIB, gpu.off_bytes // MIB]


def test_memory_is_charged_until_the_copy_is_complete_and_from_the_restore_on(
    guest: Guest, holder: subprocess.Popen[str]
) -> None:
    caller = guest.start(
        PYTHON,
        "-c",
        CALLER
        + BEGUN
        + """
stored = save(info)
say(room=ok(cuda.cuMemGetInfo())[0] // MIB)
sys.stdin.readline()
say(code=complete(info.handle), room=ok(cuda.cuMemGetInfo())[0] // MIB)
sys.stdin.readline()
filler = ok(cuda.cuMemAlloc(8 * MIB))
full = begin("Restore", pid)[0]
ok(cuda.cuMemFree(filler))
info = begin("Restore", pid)[1]
say(full=full)
sys.stdin.readline()
load(info, stored)
say(code=complete(info.handle), state=state(pid))
unlock(pid)
""",
        str(first_line(holder)["pid"]),
        stdin=subprocess.PIPE,
    )
    seen = []
    for _ in range(4):
        seen.append([first_line(caller), used(guest)])
        go_on(caller)
    caller.communicate()
    assert seen == [
        [{"room": 4}, [8, 0]],
        [{"code": 0, "room": 12}, [0, 8]],
        [{"full": 2}, [8, 0]],  # CUDA_ERROR_OUT_OF_MEMORY
        [{"code": 0, "state": LOCKED}, [8, 0]],
    ]
    go_on(holder)
    assert answer(holder) == {"back": [7], "used": 8 << 20}


def test_caller_that_is_killed_before_it_completes_leaves_the_target_lost_and_charged(
    guest: Guest, holder: subprocess.Popen[str]
) -> None:
    pid = str(first_line(holder)["pid"])
    code = CALLER + BEGUN + "save(info)\nsay()\nsys.stdin.read()"
    caller = guest.start(PYTHON, "-c", code, pid, stdin=subprocess.PIPE)
    first_line(caller)
    caller.kill()
    caller.communicate()
    assert guest.python(CALLER + "say(state=state(pid))", pid) == {"state": FAILED}
    assert used(guest) == [8, 0]


def test_forked_child_waits_for_no_lock_of_its_parents_threads(guest: Guest) -> None:
    code = (
        PRELUDE
        + STORAGE
        + """
import signal, threading
threads = [threading.Thread(target=lambda: [complete(5) for _ in iter(int, 1)], daemon=True)
           for _ in range(2)]
complete(5)
for thread in threads:
    thread.start()
ended = set()
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        signal.alarm(2)
        complete(5)
        os._exit(0)
    ended.add(os.waitpid(pid, 0)[1])
    if ended != {0}:
        break
say(ended=sorted(ended))
os._exit(0)
"""
    )
    assert guest.python(code) == {"ended": [0]}
