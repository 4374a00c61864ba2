"""Waits that are no GPU work are not charged, in virtual time."""

from __future__ import annotations

import pytest

from shim.cuda_program import START
from support.gpu.guest import GIB, PYTHON, share
from support.softgpu.virtual_time import together

SECONDS = 4
ROUND_S = 0.04
KERNEL_S = 20e-6
BESIDE = ["copy", "copy-back", "function", "callback", "copy-before", "function-before"]


@pytest.fixture
def host_options() -> list[str]:
    return ["--bus-rate", "1GiB/s"]


@pytest.mark.parametrize("what", BESIDE)
def test_a_wait_for_the_host_or_the_bus_costs_no_share(host, new_guest, client, tmp_path, what):
    guest = new_guest(share(host.uuids[0], GIB, 20))
    (rounds,) = together(tmp_path, (guest, [client("beside"), str(SECONDS), what]))
    assert rounds == pytest.approx(SECONDS / ROUND_S, rel=0.05)
    charged = guest.read_usage().gpus[0].busy_ns / 1e9
    assert charged == pytest.approx(rounds * KERNEL_S, abs=0.01)


def test_a_rare_long_kernel_is_paid_beside_copies_that_take_no_time(
    host, new_guest, client, tmp_path
):
    guest = new_guest(share(host.uuids[0], GIB, 30))
    (rounds,) = together(tmp_path, (guest, [client("beside"), "40", "kernel"]))
    worked = rounds * KERNEL_S + rounds // 100 * ROUND_S
    assert guest.read_usage().gpus[0].busy_ns / 1e9 == pytest.approx(worked, rel=0.05)
    assert worked / 40 == pytest.approx(0.30, abs=0.02)


PROGRAM = (
    START
    + """
import ctypes
ptx = b'''//softgpu entry=spin time_ns=param:0
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 nanoseconds) { ret; }
\\0'''
spin = must(cu.cuModuleGetFunction(must(cu.cuModuleLoadData(ptx)), b"spin"))
def launch(nanoseconds):
    parameters = ((nanoseconds,), (ctypes.c_uint64,))
    must(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0))
"""
)


def test_a_wait_for_another_processs_event_costs_no_share(host, new_guest):
    makes = (
        PROGRAM
        + """
event = must(cu.cuEventCreate(6))
handle = must(cu.cuIpcGetEventHandle(event))
print(ctypes.string_at(handle.getPtr(), 64).hex(), flush=True)
sys.stdin.readline()
launch(300_000_000)
must(cu.cuEventRecord(event, 0))
print("recorded", flush=True)
sys.stdin.readline()
"""
    )
    waits = (
        PROGRAM
        + """
handle = cu.CUipcEventHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[1]), 64)
event = must(cu.cuIpcOpenEventHandle(handle))
for _ in range(20):
    launch(20_000)
    must(cu.cuCtxSynchronize())
launch(20_000)
print("ready", flush=True)
sys.stdin.readline()
must(cu.cuEventSynchronize(event))
"""
    )
    owner, other = new_guest(share(host.uuids[0], GIB)), new_guest(share(host.uuids[0], GIB))
    maker = owner.start(PYTHON, "-c", makes, stdin=-1)
    handle = maker.stdout.readline().strip()
    waiter = other.start(PYTHON, "-c", waits, handle, stdin=-1)
    assert waiter.stdout.readline() == "ready\n", waiter.communicate()
    maker.stdin.write("\n")
    maker.stdin.flush()
    assert maker.stdout.readline() == "recorded\n"
    assert waiter.communicate("\n", timeout=60)[1] == ""
    assert (waiter.returncode, maker.communicate("\n")[1]) == (0, "")
    # A slice of the other's kernel may fall into the last one of these.
    assert 10 * 20_000 <= other.read_usage().gpus[0].busy_ns <= 21 * 30_000 + 2_500_000
