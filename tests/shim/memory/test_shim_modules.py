"""Device memory of modules and libraries is charged to the share."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import pytest

from shim.cubin import cubin, sections, taken
from shim.memory.test_shim_contexts import by_process, driver_says
from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, PYTHON, share

OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"

SIZES = [1000, 3 * MIB + 1, 40 * MIB, 300 * MIB]

CALLS = (
    PRELUDE
    + """
limits = cu.CUlimit
image = open(sys.argv[1], "rb").read()
def library_of(image):
    return cu.cuLibraryLoadData(image, None, None, 0, None, None, 0)
"""
)


@pytest.fixture
def images(tmp_path) -> list[str]:
    """Files of compiled code with variables of SIZES."""
    for number, size in enumerate(SIZES):
        (tmp_path / str(number)).write_bytes(cubin(sections(size, code=999 * (number + 1))))
    return [str(tmp_path / str(number)) for number in range(len(SIZES))]


def still(worker: subprocess.Popen[str]) -> None:
    assert worker.stdout and worker.stdout.readline() == "still\n", worker.communicate()[1]


def held(guest) -> dict[int, list[int]]:
    return {pid: bytes for pid, (bytes, _) in by_process(guest).items()}


@pytest.mark.parametrize("seed", range(4))
def test_any_calls_leave_usage_equal_to_the_drivers_own_ledger(
    host, new_guest, client, images, seed
):
    guest = new_guest(*(share(uuid, 2 * GIB) for uuid in host.uuids))
    chance = random.Random(seed)
    workers = [guest.start(client("modules"), "0", str(seed * 10 + i), *images) for i in range(4)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        time.sleep(chance.uniform(0.2, 0.5))
        workers[3].kill()
        workers[3].communicate()
        for worker in workers[:3]:
            worker.send_signal(signal.SIGUSR1)
        for worker in workers[:3]:
            still(worker)
        assert held(guest) == driver_says(host.path)
        assert set(held(guest)) == {worker.pid for worker in workers[:3]}
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert held(guest) == {}


def test_sixty_four_processes_killed_at_random_leave_the_drivers_own_ledger(
    host, new_guest, client, images
):
    guest = new_guest(*(share(uuid, 4 * GIB) for uuid in host.uuids))
    chance = random.Random(11)
    workers = [guest.start(client("modules"), "0", str(i), *images) for i in range(64)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        chance.shuffle(workers)
        for worker in workers[:48]:
            time.sleep(chance.uniform(0, 0.01))
            worker.kill()
        for worker in workers[48:]:
            worker.send_signal(signal.SIGUSR1)
        for worker in workers[48:]:
            still(worker)
        for worker in workers[:48]:
            worker.communicate()
        assert held(guest) == driver_says(host.path)
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert held(guest) == {}


def test_a_module_is_charged_while_loaded_and_refused_if_it_does_not_fit(host, new_guest, images):
    code = (
        CALLS
        + """
seen = [cu.cuModuleLoadData(open(sys.argv[2], "rb").read())[0].name, free_now()]
first = must(cu.cuModuleLoadData(image))
second = must(cu.cuModuleLoad(sys.argv[1].encode()))
seen += [free_now(), cu.cuModuleLoadData(image)[0].name, cu.cuMemAlloc(free_now() + 1)[0].name]
must(cu.cuModuleUnload(first))
seen += [free_now(), library_of(image)[0].name, free_now()]
own = must(cu.cuCtxCreate(None, 0, device))
seen += [cu.cuModuleLoadData(image)[0].name, must(cu.cuMemGetInfo())[0]]
must(cu.cuModuleUnload(second))
must(cu.cuModuleLoadData(image))
must(cu.cuCtxDestroy(own))
must(cu.cuCtxSetCurrent(context))
seen += [free_now()]
must(cu.cuDevicePrimaryCtxReset(device))
print(json.dumps([*seen, free_now()]))
"""
    )
    room, one = 100 * MIB, taken(40 * MIB, code=999 * 3)
    seen = new_guest(share(host.uuids[0], room)).python(code, images[2], images[3])
    assert seen == [
        FULL,
        room,
        room - 2 * one,
        FULL,
        FULL,
        room - one,
        OK,
        room - 2 * one,
        FULL,
        room - 2 * one,
        room - one,
        room,
    ]


def test_library_is_charged_once_in_each_context_that_uses_it(host, new_guest, images):
    code = (
        CALLS
        + """
must(cu.cuCtxSetCurrent(cu.CUcontext(0)))
library = must(library_of(image))
other = must(cu.cuDevicePrimaryCtxRetain(1))
seen = []
def look(where):
    must(cu.cuCtxSetCurrent(where))
    answers = [cu.cuLibraryGetGlobal(library, b".nv.global")[0].name]
    kernel = must(cu.cuLibraryGetKernel(library, b"work"))
    answers += [cu.cuKernelGetFunction(kernel)[0].name, cu.cuLibraryGetModule(library)[0].name]
    seen.append([answers, free_now()])
look(context), look(other)
third = must(cu.cuCtxCreate(None, 0, device))
look(third)
must(cu.cuDevicePrimaryCtxReset(device))
look(third)
must(cu.cuLibraryUnload(library))
print(json.dumps([*seen, free_now()]))
"""
    )
    room, one = 50 * MIB, taken(40 * MIB, code=999 * 3)
    guest = new_guest(*(share(uuid, room) for uuid in host.uuids))
    granted, refused = [[OK] * 3, room - one], [[FULL] * 3, room - one]
    assert guest.python(code, images[2]) == [granted, granted, refused, granted, room]


def test_variables_of_ptx_count_from_when_the_driver_names_them(host, new_guest):
    code = (
        PRELUDE
        + """
ptx = b'''.version 7.0
.target sm_50
.address_size 64
.visible .global .align 8 .b8 large[10000000];
.visible .global .align 8 .b8 small[1000];
'''
module = must(cu.cuModuleLoadData(ptx))
seen = []
for name in (b"small", b"none", b"large", b"small"):
    answer = cu.cuModuleGetGlobal(module, name)
    seen.append([answer[0].name, answer[2], free_now()])
seen.append(cu.cuMemAlloc(free_now() + 1)[0].name)
must(cu.cuModuleUnload(module))
print(json.dumps([*seen, free_now()]))
"""
    )
    room = 16 * MIB
    assert new_guest(share(host.uuids[0], room)).python(code) == [
        [OK, 1000, room - 1000],
        ["CUDA_ERROR_NOT_FOUND", None, room - 1000],
        [OK, 10_000_000, room - 10_001_000],
        [OK, 1000, room - 10_001_000],
        FULL,
        room,
    ]


def test_a_gpu_without_a_slice_takes_no_module_and_no_more_heap(host, new_guest, images):
    code = CALLS + (
        "heap = limits.CU_LIMIT_MALLOC_HEAP_SIZE\n"
        "answers = [cu.cuModuleLoadData(image), cu.cuCtxSetLimit(heap, 9 << 20)]\n"
        "answers += [cu.cuCtxSetLimit(heap, 8 << 20)]\n"
        "print(json.dumps([answer[0].name for answer in answers]))"
    )
    guest = new_guest(share("GPU-00000000-0000-0000-0000-000000000000", GIB))
    assert guest.python(code, images[0]) == [FULL, FULL, OK]


def test_a_driver_that_loads_lazily_ends_up_with_what_was_charged_at_load(host, new_guest, images):
    code = CALLS + (
        "def wait():\n    print(1, flush=True); sys.stdin.readline()\n"
        "module = must(cu.cuModuleLoadData(image)); wait()\n"
        "must(cu.cuModuleGetFunction(module, b'work')); wait()\n"
    )
    guest = new_guest(share(host.uuids[0], GIB))
    lazy = {"env": {"CUDA_MODULE_LOADING": "LAZY"}}
    process = guest.start(PYTHON, "-c", code, images[0], stdin=-1, **lazy)
    seen = []
    for _ in range(2):
        assert process.stdout.readline() == "1\n", process.communicate()[1]
        seen.append([held(guest)[process.pid][0], driver_says(host.path)[process.pid][0]])
        process.stdin.write("\n")
        process.stdin.flush()
    process.communicate()
    whole, of_kernel = taken(1000, code=999), 999 + 536
    assert seen == [[whole, whole - of_kernel], [whole, whole]]


@pytest.mark.parametrize(
    ("sizes", "answer"),
    [
        ([(1 << 64) - 1, 1], FULL),
        ([1 << 63, 1 << 63], FULL),
        ([GIB + 1], FULL),
        ([0], OK),
        ([], OK),
    ],
)
def test_sections_of_any_size_are_added_up_or_refused(host, new_guest, tmp_path, sizes, answer):
    variables = [part for part in sections(0) if part.name == ".nv.global"]
    parts = [part._replace(size=size) for size in sizes for part in variables]
    (tmp_path / "image").write_bytes(cubin(parts))
    code = CALLS + (
        "answers = [cu.cuModuleLoadData(image), cu.cuModuleLoad(sys.argv[1].encode())]\n"
        "print(json.dumps([[each[0].name for each in answers], free_now()]))"
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code, str(tmp_path / "image")) == [[answer] * 2, GIB]


def test_modules_and_limits_stay_charged_after_closing_every_descriptor(host, new_guest, images):
    code = (
        CALLS
        + """
import os, subprocess
module = must(cu.cuModuleLoadData(image))
must(cu.cuCtxSetLimit(limits.CU_LIMIT_MALLOC_HEAP_SIZE, 108 << 20))
os.closerange(400, 1024)
subprocess.run([sys.executable, "-c", sys.argv[2]], check=True)
must(cu.cuModuleUnload(must(cu.cuModuleLoadData(image))))
print(json.dumps(free_now()))
"""
    )
    # A refused allocation of another process clears the slots of dead processes.
    other = PRELUDE + "assert cu.cuMemAlloc(1 << 31)[0] != 0"
    left = GIB - 100 * MIB - taken(1000, code=999)
    assert new_guest(share(host.uuids[0], GIB)).python(code, images[0], other) == left


def test_a_forked_child_holds_nothing_of_its_parents_modules(host, new_guest, images):
    code = (
        CALLS
        + """
import os
module = must(cu.cuModuleLoadData(image))
must(cu.cuCtxSetLimit(limits.CU_LIMIT_MALLOC_HEAP_SIZE, 108 << 20))
asked, ask = os.pipe()
answered, answer = os.pipe()
if os.fork() == 0:
    cu.cuDevicePrimaryCtxRetain(device), cu.cuModuleUnload(module)
    os.write(answer, b".")
    os.read(asked, 1)
    os._exit(0)
os.read(answered, 1)
during = free_now()
os.write(ask, b".")
os.wait()
must(cu.cuModuleUnload(module))
print(json.dumps([during, free_now()]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB, context_bytes=MIB))
    left = GIB - 101 * MIB
    assert guest.python(code, images[2]) == [left - taken(40 * MIB, code=999 * 3), left]
