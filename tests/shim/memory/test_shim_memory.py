"""The memory limit, as programs in a container meet it."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from shim.cuda_program import START
from support.gpu.guest import GIB, MIB, PYTHON, share
from support.waiting import until
from vcuda_oci.pages import layout, page_reader

# How cuda-bindings asks for memory in each way that is charged, and gives it back.
PRELUDE = (
    START
    + """
def pool():
    return must(cu.cuDeviceGetDefaultMemPool(device))
attach = cu.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL
WAYS = {
    "cuMemAlloc": lambda n: cu.cuMemAlloc(n),
    "cuMemAllocPitch": lambda n: cu.cuMemAllocPitch(4096, n // 4096, 4),
    "cuMemAllocManaged": lambda n: cu.cuMemAllocManaged(n, attach),
    "cuMemAllocAsync": lambda n: cu.cuMemAllocAsync(n, 0),
    "cuMemAllocFromPoolAsync": lambda n: cu.cuMemAllocFromPoolAsync(n, pool(), 0),
}
FREE = {
    "cuMemAllocAsync": lambda p: cu.cuMemFreeAsync(p, 0),
    "cuMemAllocFromPoolAsync": lambda p: cu.cuMemFreeAsync(p, 0),
}
def free_now():
    return must(cu.cuMemGetInfo())[0]
"""
)

WAYS = [
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
]


@pytest.mark.parametrize("way", WAYS)
def test_two_of_three_400_mib_fit_into_1_gib_and_freeing_one_makes_room(host, new_guest, way):
    code = (
        PRELUDE
        + """
way = sys.argv[1]
answers = [WAYS[way](400 << 20) for _ in range(3)]
left = free_now()
freed = FREE.get(way, cu.cuMemFree)(answers[0][1])
again = WAYS[way](400 << 20)
print(json.dumps([[a[0].name for a in answers], left, freed[0].name, again[0].name]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    ok, full = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
    assert guest.python(code, way) == [[ok, ok, full], 224 * MIB, ok, ok]
    assert guest.read_usage().gpus[0].refusals == 1


def test_the_limit_holds_to_the_byte(host, new_guest):
    code = (
        PRELUDE
        + """
limit = int(sys.argv[1])
over = cu.cuMemAlloc(limit + 1)[0].name
exact = cu.cuMemAlloc(limit)
one_more = cu.cuMemAlloc(1)[0].name
must(cu.cuMemFree(exact[1]))
nearly = cu.cuMemAlloc(limit - 1)[0].name
last = cu.cuMemAlloc(1)[0].name
print(json.dumps([over, exact[0].name, one_more, nearly, last, free_now()]))
"""
    )
    limit = 777 * MIB + 13
    ok, full = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
    answer = new_guest(share(host.uuids[0], limit)).python(code, str(limit))
    assert answer == [full, ok, full, ok, ok, 0]


def test_cuda_shows_the_share_as_the_whole_gpu(host, new_guest):
    code = (
        PRELUDE
        + """
free, total = must(cu.cuMemGetInfo())
piece = must(cu.cuMemAlloc(100 << 20))
print(json.dumps([free, total, must(cu.cuDeviceTotalMem(device)), free_now()]))
"""
    )
    guest = new_guest(share(host.uuids[0], 3 * GIB))
    assert guest.python(code) == [3 * GIB, 3 * GIB, 3 * GIB, 3 * GIB - 100 * MIB]


def test_each_gpu_has_its_own_limit_whatever_its_number(host, new_guest):
    code = (
        PRELUDE
        + """
totals = []
for ordinal in range(2):
    totals.append(must(cu.cuDeviceTotalMem(must(cu.cuDeviceGet(ordinal)))))
print(json.dumps(totals))
"""
    )
    first, second = host.uuids
    guest = new_guest(share(second, 2 * GIB), share(first, GIB))
    assert guest.python(code) == [GIB, 2 * GIB]


def test_a_gpu_without_a_slice_gives_nothing(host, new_guest):
    code = PRELUDE + "print(json.dumps([cu.cuMemAlloc(1)[0].name, free_now()]))"
    guest = new_guest(share("GPU-00000000-0000-0000-0000-000000000000", GIB))
    assert guest.python(code) == ["CUDA_ERROR_OUT_OF_MEMORY", 0]


def test_a_destroyed_context_gives_back_what_it_held(host, new_guest):
    code = (
        PRELUDE
        + """
own = must(cu.cuCtxCreate(None, 0, device))
must(cu.cuMemAlloc(300 << 20))
during = free_now()
cu.cuCtxDestroy(own)
must(cu.cuCtxSetCurrent(context))
after = free_now()
must(cu.cuMemAlloc(200 << 20))
cu.cuDevicePrimaryCtxRelease(device)
context = must(cu.cuDevicePrimaryCtxRetain(device))
must(cu.cuCtxSetCurrent(context))
print(json.dumps([during, after, free_now()]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code) == [724 * MIB, GIB, GIB]


@pytest.mark.parametrize(("processes", "threads"), [(8, 1), (2, 4), (1, 8), (2, 8)])
def test_processes_and_threads_at_once_get_exactly_the_slice(
    host, new_guest, client, processes, threads
):
    """Some threads of a process have a reservation word of their own, others share one."""
    guest = new_guest(share(host.uuids[0], GIB))
    granted = guest.json(client("storm"), str(processes), str(threads), str(128 * MIB), "1000")
    assert granted == [8] * 1000


def test_a_killed_process_leaves_nothing_held(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    piece = PRELUDE + "print(json.dumps(cu.cuMemAlloc(int(sys.argv[1]))[0].name))"
    hold = PRELUDE + "must(cu.cuMemAlloc(1 << 30)); print(1, flush=True); sys.stdin.read()"
    holder = guest.start(PYTHON, "-c", hold, stdin=-1)
    assert holder.stdout.readline() == "1\n"
    assert guest.python(piece, "1") == "CUDA_ERROR_OUT_OF_MEMORY"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.communicate()
    assert guest.python(piece, str(GIB)) == "CUDA_SUCCESS"


def test_kills_at_any_moment_leak_nothing(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    moments = random.Random(4)
    for round_number in range(12):
        churns = [guest.start(client("churn"), str(GIB), str(seed)) for seed in range(3)]
        for churn in churns:
            assert churn.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, 0.02))
        for churn in churns:
            churn.send_signal(signal.SIGKILL)
            churn.communicate()
        granted = guest.json(client("storm"), "1", "1", str(GIB), "1")
        assert granted == [1], f"round {round_number}"
    # storm's own process has ended: its slot remains until the next poll clears it.
    guest.python(PRELUDE + "must(cu.cuMemAlloc(1)); print(1)")
    alive = [sum(process.held_bytes) for process in guest.read_usage().processes]
    assert sum(alive) <= 1


def test_a_forked_child_neither_owns_nor_frees_its_parents_share(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    answer = guest.json(client("forks"), str(256 * MIB))
    assert answer == {"during": 768 * MIB, "after": 768 * MIB, "freed": GIB, "status": 0}


def test_surviving_child_does_not_hold_its_dead_parents_memory(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    orphan = guest.start(client("orphan"), str(GIB))
    child = int(orphan.stdout.readline())
    orphan.communicate()
    try:
        assert guest.json(client("storm"), "1", "1", str(GIB), "1") == [1]
    finally:
        os.kill(child, signal.SIGKILL)


def test_exec_in_a_cloned_child_releases_its_dead_parents_memory(host, new_guest, client):
    """Made by the system call: the shim's fork handler does not run in it."""
    guest = new_guest(share(host.uuids[0], GIB))
    orphan = guest.start(client("orphan"), str(GIB), "exec")
    child = int(orphan.stdout.readline())
    orphan.communicate()
    try:
        assert guest.json(client("storm"), "1", "1", str(GIB), "1") == [1]
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_dead_parents_share_is_free_when_its_cloned_child_ends(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    orphan = guest.start(client("orphan"), str(GIB), "clone")
    child = int(orphan.stdout.readline())
    orphan.communicate()
    try:
        while_child_lives = guest.json(client("storm"), "1", "1", str(GIB), "1")
    finally:
        os.kill(child, signal.SIGKILL)
    assert while_child_lives == [0]
    until(lambda: guest.json(client("storm"), "1", "1", str(GIB), "1") == [1], "the charge's end")


def test_memory_stays_charged_after_closing_every_descriptor(host, new_guest):
    code = (
        PRELUDE
        + """
import os
keep = cu.cuMemAlloc(600 << 20)
os.closerange(400, 1024)
refused = cu.cuMemAlloc(600 << 20)[0].name
import subprocess
other = subprocess.run([sys.executable, "-c", sys.argv[1]], capture_output=True, text=True)
second = cu.cuMemAlloc(300 << 20)[0].name
third = cu.cuMemAlloc(300 << 20)[0].name
print(json.dumps([refused, second, third]))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB))
    looks_on = PRELUDE + "print(free_now())"
    full = "CUDA_ERROR_OUT_OF_MEMORY"
    assert guest.python(code, looks_on) == [full, "CUDA_SUCCESS", full]


def test_program_can_free_memory_before_closing_every_descriptor(host, new_guest):
    code = (
        PRELUDE
        + """
import os, subprocess
first, second = must(cu.cuMemAlloc(600 << 20)), must(cu.cuMemAlloc(100 << 20))
os.closerange(400, 1024)
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
must(cu.cuMemFree(first))
print(json.dumps([free_now(), cu.cuMemAlloc(600 << 20)[0].name]))
"""
    )
    # A refused allocation of another process clears the slots of dead processes.
    other = PRELUDE + "assert cu.cuMemAlloc(1 << 31)[0] != 0"
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.python(code, other) == [924 * MIB, "CUDA_SUCCESS"]


def test_hostile_numbers_in_the_usage_page_raise_nothing():
    page = bytearray(b"\xff" * layout.USAGE_SIZE)
    page[: layout.USAGE_HEAD_SIZE] = layout.empty_usage_page()
    page[12:16] = b"\xff\xff\xff\xff"
    assert len(page_reader.read_usage(bytes(page)).processes) == layout.MAX_PROCESSES
    with pytest.raises(ValueError, match="magic"):
        page_reader.read_usage(bytes(layout.USAGE_SIZE))
    with pytest.raises(ValueError, match="bytes"):
        page_reader.read_usage(b"")


def test_exec_releases_the_memory_of_the_old_program(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB))
    then = PRELUDE + "print(json.dumps(cu.cuMemAlloc(int(sys.argv[1]))[0].name))"
    now = (
        PRELUDE
        + f"""
import os
must(cu.cuMemAlloc({GIB}))
assert cu.cuMemAlloc(1)[0] == cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY
os.execv(sys.executable, [sys.executable, "-c", {then!r}, "{GIB}"])
"""
    )
    assert guest.python(now) == "CUDA_SUCCESS"
