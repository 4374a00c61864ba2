"""The core limit in real time: witnesses that what is exact in virtual time (test_shim_limiter.py)
is so on a machine as well."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from support.gpu.guest import GIB, PYTHON, WORKLOAD, share
from support.softgpu.softgpu_host import PRELUDE

pytestmark = pytest.mark.timed

# Kernel length in microseconds, and how many are queued ahead (0: wait for each).
SHAPES = {
    "sync 5 ms": ("5000", "0"),
    "async 50 us": ("50", "64"),
    "sync 300 ms": ("300000", "0"),
}
POINTS = 0.02


def busy(shape, seconds):
    kernel_us, depth = SHAPES[shape]
    return [WORKLOAD, "busy", "--seconds", str(seconds), "--kernel-us", kernel_us, "--async", depth]


@pytest.mark.parametrize("shape", ["sync 5 ms", "async 50 us"])
def test_alone_on_a_gpu_a_container_gets_its_percent_and_no_more(host, new_guest, shape):
    guest = new_guest(share(host.uuids[0], GIB, 30))
    result = guest.json(*busy(shape, 3))
    # Work is counted when it ends, so a window may hold one kernel more or less.
    one_kernel = int(SHAPES[shape][0]) / 1e6 / result["wall_seconds"]
    assert result["share"] == pytest.approx(0.30, abs=POINTS + one_kernel)


def test_a_waiting_program_costs_no_processor_time(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 10))
    began = time.monotonic()
    process = guest.start(*busy("sync 300 ms", 1))
    process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    assert time.monotonic() - began > 3  # two kernels, and the wait between them
    # The rest is the software GPU and the loader.
    assert used.ru_utime + used.ru_stime < 0.4


def test_a_program_that_does_nothing_has_no_thread_and_is_woken_by_nothing(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 50))
    process = guest.start(
        PYTHON,
        "-c",
        PRELUDE
        + """
start()
ok(cuda.cuMemAlloc(1 << 20))
spin(kernel(b"spin"), 1_000_000)
ok(cuda.cuCtxSynchronize())
say(done=True)
sys.stdin.read()
""",
        stdin=subprocess.PIPE,
    )
    assert process.stdout.readline() == '{"done": true}\n'
    time.sleep(0.2)  # it comes to rest
    before = switches(process.pid)
    time.sleep(1)
    assert (os.listdir(f"/proc/{process.pid}/task"), switches(process.pid)) == (
        [str(process.pid)],
        before,
    )
    process.communicate()


def switches(pid: int) -> list[str]:
    """How often it slept and was made to wait, as lines."""
    with open(f"/proc/{pid}/status") as status:
        return [line for line in status if "ctxt_switches" in line]
