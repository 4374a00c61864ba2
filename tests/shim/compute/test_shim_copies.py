"""Copies within the GPU and memsets, paced as launches are where the settings say so: in virtual
time."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from shim.conftest import CLIENTS
from shim.cuda_program import CALLS
from support.files import ROOT
from support.gpu.guest import GIB, MIB, PYTHON, share
from support.softgpu.virtual_time import Clock, answer, together
from vcuda_oci.pages import layout, page_reader

POINTS = 0.02
SECONDS = 2.5
RATE = 256 * MIB  # of the device, so slow that the host's own copying does not count beside it
# bytes, calls ahead (0: waits for each), microseconds of a kernel after each, the call
SHAPES = {
    "copies of 4 KiB, async": (4096, 64, 0, "cuMemcpyDtoDAsync_v2"),
    "copies of 64 KiB, sync": (65536, 0, 0, "cuMemcpyDtoD_v2"),
    "copies of 1 MiB, async": (MIB, 4, 0, "cuMemcpyAsync"),
    "copies of 4 MiB, sync": (4 * MIB, 0, 0, "cuMemcpyDtoD_v2"),
    "rectangles of 64 KiB, async": (65536, 32, 0, "cuMemcpy2DAsync_v2"),
    "sets of 4 KiB, async": (4096, 64, 0, "cuMemsetD8Async"),
    "sets of 256 KiB, sync": (MIB // 4, 0, 0, "cuMemsetD32_v2"),
    "sets of 4 MiB, async": (4 * MIB, 2, 0, "cuMemsetD8Async"),
    "short kernels and small copies": (16384, 16, 20, "cuMemcpyDtoDAsync_v2"),
    "long kernels and large sets": (2 * MIB, 2, 5000, "cuMemsetD8Async"),
}


@pytest.fixture
def host_options():
    return ["--copy-rate", f"{RATE >> 20}MiB/s"]


def forms():
    """The calls that clients/compute/copy_forms.h names."""
    with open(os.path.join(CLIENTS, "compute", "copy_forms.h"), encoding="utf-8") as file:
        text = file.read()
    names = re.findall(r"^  [CA] \((cuMemcpy\w*),", text, re.MULTILINE)
    sets = re.findall(r"^  S \((cuMemset\w+?)##bits##(\w+),", text, re.MULTILINE)
    return names + [f"{name}{bits}{rest}" for bits in (8, 16, 32) for name, rest in sets]


def metered():
    """The calls that policy.list has metered, but for those of 32-bit addresses."""
    with open(os.path.join(ROOT, "libvcuda", "policy.list"), encoding="utf-8") as file:
        names = re.findall(r"^metered (cuMem\w+)$", file.read(), re.MULTILINE)
    return [name for name in names if name + "_v2" not in names or "Batch" in name]


def run(folder, guest, client, shape, seconds=SECONDS):
    size, ahead, kernel_us, form = shape
    words = (seconds, size, RATE, ahead, kernel_us, form)
    (result,) = together(folder, (guest, [client("copies"), *map(str, words)]))
    return result


def busy_seconds(guest):
    return guest.read_usage().gpus[0].busy_ns / 1e9


@pytest.mark.parametrize("name", SHAPES)
def test_a_program_that_copies_or_sets_gets_its_percent(host, new_guest, client, tmp_path, name):
    guest = new_guest(share(host.uuids[0], GIB, 30), meter_copies=True)
    result = run(tmp_path, guest, client, SHAPES[name])
    assert result["share"] == pytest.approx(0.30, abs=POINTS)
    assert busy_seconds(guest) == pytest.approx(result["gpu_seconds"], abs=POINTS * SECONDS)
    assert result["right"]


@pytest.mark.parametrize("name", forms())
def test_each_form_of_copy_and_set_is_paced_and_writes_correctly(
    host, new_guest, client, tmp_path, name
):
    guest = new_guest(share(host.uuids[0], GIB, 30), meter_copies=True)
    result = run(tmp_path, guest, client, (MIB // 2, 0, 0, name), seconds=0.5)
    # A new container has some milliseconds in hand.
    assert result["share"] < 0.35
    assert busy_seconds(guest) == pytest.approx(result["gpu_seconds"], abs=POINTS * 0.5)
    assert result["right"]


def test_every_metered_form_is_among_those_that_were_tried():
    assert sorted(forms()) == sorted(metered())
    assert len(forms()) == len(set(forms())) == 68


@pytest.mark.parametrize(
    "name", ["copies of 64 KiB, sync", "copies of 1 MiB, async", "sets of 4 MiB, async"]
)
def test_where_copies_are_not_metered_they_are_neither_paced_nor_charged(
    host, new_guest, client, tmp_path, name
):
    guest = new_guest(share(host.uuids[0], GIB, 10))
    result = run(tmp_path, guest, client, SHAPES[name], seconds=1)
    usage = guest.read_usage().gpus[0]
    assert result["share"] > 0.2  # and waits for each wake-up
    assert result["right"]
    assert (usage.busy_ns, usage.launches, usage.throttled_ns) == (0, 0, 0)


PRELUDE = (
    CALLS
    + """
import ctypes
def use(ordinal):
    context = must(cu.cuDevicePrimaryCtxRetain(must(cu.cuDeviceGet(ordinal))))
    must(cu.cuCtxSetCurrent(context))
    return context
must(cu.cuInit(0))
SIZE = 1 << 20
"""
)
COPIES_ACROSS = """
contexts = [use(0), use(1)]
there = must(cu.cuMemAlloc(SIZE))
use(0)
here, also_here = must(cu.cuMemAlloc(SIZE)), must(cu.cuMemAlloc(SIZE))
buffer = ctypes.create_string_buffer(SIZE)
host = ctypes.addressof(buffer)
for _ in range(20):
    must(cu.cuMemcpyHtoD(here, host, SIZE))
    must(cu.cuMemcpyDtoH(host, here, SIZE))
    must(cu.cuMemcpyAsync(here, host, SIZE, 0))
    must(cu.cuMemcpyAsync(host, here, SIZE, 0))
    must(cu.cuMemcpyDtoD(there, here, SIZE))
    must(cu.cuMemcpyPeer(here, contexts[0], there, contexts[1], SIZE))
    must(cu.cuMemcpyAsync(there, here, SIZE, 0))
must(cu.cuCtxSynchronize())
for _ in range(%d):
    must(cu.cuMemcpyDtoD(here, also_here, SIZE))
must(cu.cuCtxSynchronize())
print(json.dumps(True))
"""
CAPTURED = """
use(0)
left, right = must(cu.cuMemAlloc(SIZE)), must(cu.cuMemAlloc(SIZE))
stream = must(cu.cuStreamCreate(1))
must(cu.cuMemsetD8(left, 7, SIZE))
must(cu.cuMemsetD8(right, 0, SIZE))
must(cu.cuCtxSynchronize())
must(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
for _ in range(100):
    must(cu.cuMemcpyDtoDAsync(right, left, SIZE, stream))
    must(cu.cuMemcpyAsync(right, left, SIZE, stream))
    must(cu.cuMemsetD8Async(right, 9, SIZE // 2, stream))
graph = must(cu.cuStreamEndCapture(stream))
nodes = must(cu.cuGraphGetNodes(graph))[1]
found = ctypes.create_string_buffer(SIZE)
must(cu.cuMemcpyDtoH(found, right, SIZE))
before = sorted(set(found.raw))
launches = %d
if launches:
    ready = must(cu.cuGraphInstantiate(graph, 0))
    for _ in range(launches):
        must(cu.cuGraphLaunch(ready, stream))
    must(cu.cuStreamSynchronize(stream))
must(cu.cuMemcpyDtoH(found, right, SIZE))
print(json.dumps([nodes, before, found.raw[0], found.raw[-1]]))
"""
MIB_SECONDS = MIB / RATE


def python(folder, guest, code):
    (printed,) = together(folder, (guest, [PYTHON, "-c", PRELUDE + code]))
    return printed


def test_copies_over_a_bus_are_not_charged_and_those_within_a_gpu_are(host, new_guest, tmp_path):
    guest = new_guest(*(share(uuid, GIB, 80) for uuid in host.uuids), meter_copies=True)
    assert python(tmp_path, guest, COPIES_ACROSS % 0)
    assert [gpu.busy_ns for gpu in guest.read_usage().gpus[:2]] == [0, 0]
    assert python(tmp_path, guest, COPIES_ACROSS % 50)
    gpus = guest.read_usage().gpus
    assert gpus[0].busy_ns == pytest.approx(50 * MIB_SECONDS * 1e9, rel=0.05)
    assert gpus[1].busy_ns == 0


def test_copies_into_a_capture_are_nodes_and_cost_nothing_until_their_graph_runs(
    host, new_guest, tmp_path
):
    guest = new_guest(share(host.uuids[0], GIB, 50), meter_copies=True)
    assert python(tmp_path, guest, CAPTURED % 0) == [300, [0], 0, 0]
    # The two sets before the capture count; 250 captured ones do not.
    assert 0 < busy_seconds(guest) < 10 * MIB_SECONDS
    assert python(tmp_path, guest, CAPTURED % 1) == [300, [0], 9, 7]
    assert busy_seconds(guest) == pytest.approx((4 + 250) * MIB_SECONDS, rel=0.05)


# As the host does after a second: read the use until then, and write the page in place.
OPERATOR = """
import os, shutil, sys, time
time.sleep(1)
limits, page, usage, kept = sys.argv[1:]
shutil.copyfile(usage, kept)
file = os.open(limits, os.O_WRONLY)
os.pwrite(file, open(page, "rb").read(), 0)
print("true")
"""


def test_the_setting_counts_for_a_running_program_too(host, new_guest, client, tmp_path):
    gpu = share(host.uuids[0], GIB, 30)
    guest = new_guest(gpu)
    page, kept = tmp_path / "page", tmp_path / "kept"
    page.write_bytes(layout.limits_page([gpu], meter_copies=True))
    clock = Clock(tmp_path, 2)
    shape = (2.5, MIB, RATE, 4, 0, "cuMemcpyDtoDAsync_v2")
    program = guest.start(*clock.command(client("copies"), *map(str, shape)))
    words = (guest.limits, str(page), guest.usage, str(kept))
    operator = subprocess.Popen(
        clock.command(PYTHON, "-c", OPERATOR, *words),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert answer(operator)
    result = answer(program)
    before, after = page_reader.read_usage(kept.read_bytes()).gpus[0], guest.read_usage().gpus[0]
    assert (before.busy_ns, before.throttled_ns) == (0, 0)
    assert after.throttled_ns > 0
    assert 0 < after.busy_ns / 1e9 < result["gpu_seconds"]
