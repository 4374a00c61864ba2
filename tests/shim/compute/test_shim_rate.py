"""The rate in `limits` is the only limit, and a new one applies at once, in virtual time."""

from __future__ import annotations

import subprocess

import pytest

from support.files import ROOT
from support.gpu.guest import GIB, PYTHON, share
from support.softgpu.softgpu_host import PRELUDE
from support.softgpu.virtual_time import Clock, answer, together
from vcuda_oci.pages import layout

POINTS = 0.02 + 1e-9  # 18 kernels for 20 are within two points, though not as floats
# Of the client `launches`, for 10 s.
ASYNC_50_US = ["10", "1", "0", "64", "periodic", "50", "50", "1"]

# Kernels of 1 ms for 4 s, with a number of them queued; prints each one's end.
PROGRAM = (
    PRELUDE
    + """
start()
function, ahead = kernel(b"spin"), int(sys.argv[1])
events = [ok(cuda.cuEventCreate(2)) for _ in range(ahead + 1)]
ends, launched, last = [], 0, time.monotonic() + 4
while time.monotonic() < last:
    spin(function, 1_000_000)
    ok(cuda.cuEventRecord(events[launched % len(events)], 0))
    launched += 1
    if launched > ahead:
        ok(cuda.cuEventSynchronize(events[launched % len(events)]))
        ends.append(time.monotonic())
print(json.dumps(ends))
"""
)

# As the host does it: one number of the page, in place.
OPERATOR = """
import os, sys, time
time.sleep(2)
limits = os.open(sys.argv[1], os.O_WRONLY)
page = open(sys.argv[2], "rb").read()
print(time.monotonic())
os.pwrite(limits, page, 0)
"""


def ended(ends, begin, seconds):
    """The share of the GPU in that window, by kernels of 1 ms that ended."""
    return sum(begin <= end < begin + seconds for end in ends) / 1e3 / seconds


@pytest.mark.parametrize("ahead", [0, 8], ids=["sync", "async"])
@pytest.mark.parametrize(("before", "after"), [(20, 60), (60, 20), (10, 90), (90, 10)])
def test_a_new_rate_is_in_force_within_100_ms(host, new_guest, tmp_path, before, after, ahead):
    now, then = (share(host.uuids[0], GIB, 20, rate_ppm=rate * 10_000) for rate in (before, after))
    guest = new_guest(now)
    new_page = tmp_path / "new"
    new_page.write_bytes(layout.limits_page([then]))
    clock = Clock(tmp_path, 2)
    program = guest.start(*clock.command(PYTHON, "-c", PROGRAM, str(ahead)))
    operator = subprocess.Popen(
        clock.command(PYTHON, "-c", OPERATOR, guest.limits, str(new_page)),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    change, ends = answer(operator), answer(program)
    assert ended(ends, change - 1, 1) == pytest.approx(before / 100, abs=POINTS)
    tenths = [ended(ends, change + 0.1 * tenth, 0.1) for tenth in range(1, 11)]
    assert tenths == [pytest.approx(after / 100, abs=POINTS)] * 10
    assert sum(tenths) / 10 == pytest.approx(after / 100, abs=POINTS / 4)


@pytest.mark.parametrize(
    "policy", [layout.POLICY_ELASTIC, layout.POLICY_WEIGHTED, layout.POLICY_BEST_EFFORT]
)
def test_without_an_arbiter_the_rate_stays_whatever_the_policy_and_however_idle_the_gpu(
    host, new_guest, client, tmp_path, policy
):
    gpu = share(host.uuids[0], GIB, 30, core_ceiling_percent=100, policy=policy)
    guest = new_guest(gpu)
    (result,) = together(tmp_path, (guest, [client("launches"), *ASYNC_50_US]))
    assert result["share"] == pytest.approx(0.30, abs=POINTS)


def test_a_container_with_the_whole_gpus_time_is_not_paced(host, new_guest, client, tmp_path):
    guest = new_guest(share(host.uuids[0], GIB, 100))
    (result,) = together(tmp_path, (guest, [client("launches"), *ASYNC_50_US]))
    assert result["share"] == pytest.approx(1, abs=POINTS)
    assert guest.read_usage().gpus[0].throttled_ns == 0
