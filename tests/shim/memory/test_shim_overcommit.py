"""Overcommitted shares: each is fully usable and no larger."""

from __future__ import annotations

import json
import signal

import pytest

from shim.bounds.test_shim_robust import ledger
from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, PYTHON, share

OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
SLICE = 12 * GIB

# Fills the slice in pieces of 1 GiB, writes to each, computes, and reads back what it wrote.
FILL = (
    PRELUDE
    + """
blocks, answers = [], []
while True:
    rc, block = cu.cuMemAlloc(1 << 30)
    answers.append(rc.name)
    if rc != 0:
        break
    blocks.append(int(block))
last = cu.cuMemAlloc(1)[0].name
print(json.dumps([len(blocks), answers[-1], last, *must(cu.cuMemGetInfo())]), flush=True)
sys.stdin.readline()
ptx = b'''
.version 7.0
.target sm_50
.address_size 64
.visible .entry spin() { ret; }
'''
spin = must(cu.cuModuleGetFunction(must(cu.cuModuleLoadData(ptx)), b"spin"))
for number, block in enumerate(blocks):
    must(cu.cuMemsetD8(block + (1 << 30) - 16, number + 1, 16))
    must(cu.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
must(cu.cuCtxSynchronize())
back, read = bytearray(16), []
for block in blocks:
    must(cu.cuMemcpyDtoH(back, block + (1 << 30) - 16, 16))
    read.append(sorted(set(back)))
print(json.dumps(read), flush=True)
sys.stdin.readline()
"""
)


def on_the_gpu(root: str) -> int:
    """Bytes of all processes on GPU 0, from NVML."""
    return sum(ledger(root).values())


def say(process, line: str = "\n"):
    process.stdin.write(line)
    process.stdin.flush()
    answer = process.stdout.readline()
    assert answer, process.communicate()[1]
    return json.loads(answer)


def test_two_containers_fill_slices_that_the_gpu_has_not_and_compute(host, new_guest):
    guests = [new_guest(share(host.uuids[0], SLICE, managed_memory=1)) for _ in range(2)]
    both = [guest.start(PYTHON, "-c", FILL, stdin=-1) for guest in guests]
    try:
        for process in both:
            assert json.loads(process.stdout.readline()) == [12, FULL, FULL, 0, SLICE]
        assert on_the_gpu(host.path) == 16 * GIB
        for process in both:
            assert say(process) == [[number + 1] for number in range(12)]
    finally:
        both[0].send_signal(signal.SIGKILL)
        both[0].communicate()
    # A killed process holds nothing: the neighbour's pages are on the GPU, the share is free.
    assert on_the_gpu(host.path) == SLICE
    again = guests[0].start(PYTHON, "-c", FILL, stdin=-1)
    assert json.loads(again.stdout.readline()) == [12, FULL, FULL, 0, SLICE]
    for process in (again, both[1]):
        process.kill()
        process.communicate()


def test_without_managed_memory_the_second_gets_what_the_first_left(host, new_guest):
    guests = [new_guest(share(host.uuids[0], SLICE)) for _ in range(2)]
    both = [guest.start(PYTHON, "-c", FILL, stdin=-1) for guest in guests]
    counts = [json.loads(process.stdout.readline())[0] for process in both]
    for process in both:
        process.kill()
        process.communicate()
    assert sum(counts) == 16


def test_cuda_shows_the_share_even_on_a_nearly_full_gpu(host, new_guest):
    code = (
        PRELUDE
        + """
before = must(cu.cuMemGetInfo())
must(cu.cuMemAlloc(5 << 30))
print(json.dumps([*before, *must(cu.cuMemGetInfo()), must(cu.cuDeviceTotalMem(device))]))
"""
    )
    hold = PRELUDE + "must(cu.cuMemAlloc(16 << 30)); print(1, flush=True); sys.stdin.read()"
    neighbour = new_guest(share(host.uuids[0], 16 * GIB)).start(PYTHON, "-c", hold, stdin=-1)
    assert neighbour.stdout.readline() == "1\n"
    seen = {}
    for managed in (0, 1):
        guest = new_guest(share(host.uuids[0], SLICE, managed_memory=managed))
        process = guest.start(PYTHON, "-c", code)
        seen[managed] = process.communicate()[0]
    neighbour.communicate("")
    assert json.loads(seen[1]) == [SLICE, SLICE, 7 * GIB, SLICE, SLICE]
    assert seen[0] == ""  # there the driver has nothing to give


def test_rows_have_the_pitch_that_the_driver_gives_and_are_charged_so(host, new_guest):
    code = (
        PRELUDE
        + """
rows, kinds = [], set()
managed = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
for width, height, element in json.loads(sys.argv[1]):
    rc, *found = cu.cuMemAllocPitch(width, height, element)
    rows.append([rc.name, found[1] if rc == 0 else 0, free_now()])
    if rc == 0:
        rows[-1].append(int(must(cu.cuMemGetAddressRange(found[0]))[1]))
        kinds.add(int(must(cu.cuPointerGetAttribute(managed, found[0]))))
        must(cu.cuMemFree(found[0]))
print(json.dumps([list(kinds), rows, free_now()]))
"""
    )
    asked = [(width, 7, 4) for width in (1, 511, 512, 513, 4096, 100_000)]
    asked += [
        (1 << 20, 1024, 16),
        (64, 1 << 21, 8),
        (0, 1, 4),
        (1, 0, 4),
        (64, 1, 5),
        (1 << 31, 1, 4),
    ]
    answers = []
    for managed in (0, 1):
        guest = new_guest(share(host.uuids[0], GIB, managed_memory=managed))
        answers.append(guest.python(code, json.dumps(asked)))
        assert guest.read_usage().gpus[0].held_bytes == 0
    physical, managed_rows = answers
    assert (physical[0], managed_rows[0]) == ([0], [1])
    assert managed_rows[1:] == physical[1:]
    assert [row[0] for row in physical[1]].count(OK) == 8


WHAT_DIFFERS = (
    PRELUDE
    + """
memory = must(cu.cuMemAlloc(1 << 20))
kind = cu.CUpointer_attribute
print(json.dumps([
    cu.cuIpcGetMemHandle(memory)[0].name,
    int(must(cu.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_IS_MANAGED, memory))),
    int(must(cu.cuPointerGetAttribute(kind.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory))),
]))
"""
)


@pytest.mark.parametrize(
    ("managed", "seen"),
    [(0, [OK, 0, 2]), (1, ["CUDA_ERROR_INVALID_VALUE", 1, 2])],
    ids=["physical", "managed"],
)
def test_managed_memory_shows_as_such_and_has_no_ipc_handle(host, new_guest, managed, seen):
    guest = new_guest(share(host.uuids[0], GIB, managed_memory=managed))
    assert guest.python(WHAT_DIFFERS) == seen


PHYSICAL = (
    PRELUDE
    + """
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
WAYS["cuMemCreate"] = lambda n: cu.cuMemCreate(n, prop, 0)
def array(size):
    wanted = cu.CUDA_ARRAY3D_DESCRIPTOR()
    wanted.Width, wanted.Height, wanted.Depth, wanted.NumChannels = 1024, 1024, size >> 20, 1
    wanted.Format = cu.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8
    return cu.cuArray3DCreate(wanted)
WAYS["cuArray3DCreate"] = array
FREE["cuMemCreate"], FREE["cuArray3DCreate"] = cu.cuMemRelease, cu.cuArrayDestroy
way = sys.argv[1]
rc, *got = WAYS[way](12 << 30)
refusal = [rc.name, free_now() >> 30]
managed = must(cu.cuMemAlloc(12 << 30))
print(json.dumps([*refusal, free_now()]), flush=True)
must(cu.cuMemFree(managed))
rc, *got = WAYS[way](4 << 30)
print(json.dumps([rc.name, free_now() >> 30]), flush=True)
"""
)


@pytest.mark.parametrize(
    "way", ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemCreate", "cuArray3DCreate"]
)
def test_what_stays_physical_ends_with_the_gpu_and_charges_nothing_then(host, new_guest, way):
    hold = PRELUDE + "must(cu.cuMemAllocAsync(12 << 30, 0)); print(1, flush=True); sys.stdin.read()"
    guests = [new_guest(share(host.uuids[0], SLICE, managed_memory=1)) for _ in range(2)]
    holder = guests[0].start(PYTHON, "-c", hold, stdin=-1)
    assert holder.stdout.readline() == "1\n"
    second = guests[1].start(PYTHON, "-c", PHYSICAL, way)
    out, err = second.communicate(timeout=60)
    holder.communicate("")
    # 4 GiB are free: the driver refuses, not the share's limit.
    assert [json.loads(line) for line in out.splitlines()] == [[FULL, 12, 0], [OK, 8]], err
    assert guests[1].read_usage().gpus[0].refusals == 0


def test_gpu_without_paging_is_not_overcommitted_and_warns_once(new_host, new_guest):
    host = new_host("--no-managed")
    guest = new_guest(share(host.uuids[0], GIB, managed_memory=1), on=host)
    code = (
        PRELUDE
        + """
answers = [cu.cuMemAlloc(MIB)[0].name for MIB in (1 << 20, 1 << 20)]
answers += [cu.cuMemAllocPitch(64, 64, 4)[0].name, free_now()]
print(json.dumps(answers))
"""
    )
    process = guest.start(PYTHON, "-c", code)
    out, err = process.communicate(timeout=60)
    assert json.loads(out) == ["CUDA_ERROR_NOT_SUPPORTED"] * 3 + [GIB]
    assert err == (
        "libvcuda: /usr/local/vcuda/limits: memory is overcommitted and this GPU's driver cannot "
        "page managed memory; set memory-overcommit to 1 on this host\n"
    )


def test_one_container_can_hold_slices_of_both_kinds(host, new_guest):
    first, second = host.uuids
    guest = new_guest(share(first, GIB, managed_memory=1), share(second, GIB))
    code = (
        PRELUDE
        + """
seen = []
for ordinal in range(2):
    must(cu.cuCtxSetCurrent(must(cu.cuDevicePrimaryCtxRetain(must(cu.cuDeviceGet(ordinal))))))
    memory = must(cu.cuMemAlloc(300 << 20))
    kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
    seen.append([int(must(cu.cuPointerGetAttribute(kind, memory))), free_now() >> 20])
print(json.dumps(seen))
"""
    )
    assert guest.python(code) == [[1, 724], [0, 724]]
    assert [gpu.held_bytes for gpu in guest.read_usage().gpus[:2]] == [300 * MIB] * 2
