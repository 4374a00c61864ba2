"""Contexts are always counted, and charged if the host configures their size."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

import pytest

from shim.conftest import LIBRARIES
from shim.cuda_program import CALLS
from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import GIB, MIB, PYTHON, share
from vcuda_oci.pages import page_reader

OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
CONTEXT = 300 * MIB

INITIALISED = CALLS + "must(cu.cuInit(0))\n"


def by_process(guest) -> dict[int, tuple[list[int], list[int]]]:
    """For each live process: bytes and contexts on both GPUs, from the usage page."""
    with open(guest.usage, "rb") as usage:
        live = page_reader.live_slots(usage.fileno())
        found = page_reader.read_usage(usage.read(), live)
    each = {p.pid: (list(p.held_bytes[:2]), list(p.contexts[:2])) for p in found.processes}
    return {pid: figures for pid, figures in each.items() if any(map(any, figures))}


def driver_says(root: str) -> dict[int, list[int]]:
    """Of each process, the bytes that the software GPU itself counts on both GPUs."""
    code = (
        "import json, pynvml as nv; nv.nvmlInit(); found = {}\n"
        "for gpu in range(2):\n"
        "    handle = nv.nvmlDeviceGetHandleByIndex(gpu)\n"
        "    for each in nv.nvmlDeviceGetComputeRunningProcesses(handle):\n"
        "        found.setdefault(each.pid, [0, 0])[gpu] = each.usedGpuMemory\n"
        "print(json.dumps(found))"
    )
    environment = {"LD_LIBRARY_PATH": os.path.join(root, LIBRARIES), "SOFTGPU_ROOT": root}
    command = [PYTHON, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return {int(pid): held for pid, held in json.loads(done.stdout).items()}


@pytest.mark.parametrize("seed", range(6))
def test_any_calls_leave_contexts_and_bytes_equal_to_the_drivers_own_account(
    new_host, new_guest, client, seed
):
    host = new_host("--context-memory", str(CONTEXT))
    slices = [share(uuid, 3 * GIB, context_bytes=CONTEXT) for uuid in host.uuids]
    guest = new_guest(*slices, on=host)
    chance = random.Random(seed)
    workers = [guest.start(client("contexts"), str(seed * 10 + i)) for i in range(5)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        time.sleep(chance.uniform(0.1, 0.4))
        for worker in workers[3:]:
            worker.send_signal(signal.SIGKILL)
            worker.communicate()
        counts = {}
        for worker in workers[:3]:
            worker.send_signal(signal.SIGUSR1)
            answer = worker.stdout.readline()
            assert answer, worker.communicate()[1]
            counts[worker.pid] = json.loads(answer)
        shown = by_process(guest)
        assert {pid: contexts for pid, (_, contexts) in shown.items()} == {
            pid: count for pid, count in counts.items() if any(count)
        }
        assert {pid: held for pid, (held, _) in shown.items()} == driver_says(host.path)
        for gpu in range(2):
            assert sum(held[gpu] for held, _ in shown.values()) <= 3 * GIB
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    assert by_process(guest) == {}


def test_a_context_that_does_not_fit_into_the_slice_is_not_created(host, new_guest):
    code = (
        INITIALISED
        + """
answers = [cu.cuCtxCreate(None, 0, 0) for _ in range(4)]
free, total = must(cu.cuMemGetInfo())
seen = [[answer[0].name for answer in answers], free, total]
seen.append(cu.cuDevicePrimaryCtxRetain(0)[0].name)
seen.append(must(cu.cuDevicePrimaryCtxGetState(0))[1])
seen.append(cu.cuMemAlloc(free + 1)[0].name)
must(cu.cuCtxDestroy(answers[0][1]))
seen.append(cu.cuDevicePrimaryCtxRetain(0)[0].name)
seen.append(must(cu.cuMemGetInfo())[0])
print(json.dumps(seen))
"""
    )
    guest = new_guest(share(host.uuids[0], GIB, context_bytes=CONTEXT))
    left = GIB - 3 * CONTEXT
    expected = [[OK, OK, OK, FULL], left, GIB, FULL, 0, FULL, OK, left]
    assert guest.python(code) == expected
    assert guest.read_usage().gpus[0].refusals == 3


def test_contexts_are_counted_where_they_are_not_charged(host, new_guest):
    code = (
        INITIALISED
        + """
contexts = [must(cu.cuCtxCreate(None, 0, 0)) for _ in range(2)]
for _ in range(3):
    must(cu.cuDevicePrimaryCtxRetain(0))
must(cu.cuDevicePrimaryCtxRetain(1))
print(json.dumps(must(cu.cuMemGetInfo())), flush=True)
sys.stdin.readline()
must(cu.cuCtxDestroy(contexts[1])), must(cu.cuDevicePrimaryCtxReset(0))
for _ in range(2):
    must(cu.cuDevicePrimaryCtxRelease(0))
print(json.dumps(must(cu.cuDevicePrimaryCtxRelease(1)) or 0), flush=True)
sys.stdin.readline()
must(cu.cuDevicePrimaryCtxRelease(0)), must(cu.cuCtxDestroy(contexts[0]))
print(0, flush=True)
sys.stdin.readline()
"""
    )
    guest = new_guest(*(share(uuid, GIB) for uuid in host.uuids))
    process = guest.start(PYTHON, "-c", code, stdin=-1)
    seen = [json.loads(process.stdout.readline())]
    seen.append(by_process(guest).get(process.pid))
    for _ in range(2):
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        seen.append(by_process(guest).get(process.pid))
    process.communicate("\n")
    assert seen == [[GIB, GIB], ([0, 0], [3, 1]), ([0, 0], [2, 0]), None]


def test_the_drivers_refusal_returns_the_charge(new_host, new_guest):
    host = new_host("--context-memory", "9GiB")
    guest = new_guest(share(host.uuids[0], 12 * GIB, context_bytes=2 * GIB), on=host)
    code = (
        INITIALISED
        + """
context = must(cu.cuCtxCreate(None, 0, 0))
answers = [cu.cuCtxCreate(None, 0, 0)[0].name, cu.cuDevicePrimaryCtxRetain(0)[0].name]
print(json.dumps([*answers, *must(cu.cuMemGetInfo())]), flush=True)
sys.stdin.readline()
"""
    )
    process = guest.start(PYTHON, "-c", code, stdin=-1)
    assert json.loads(process.stdout.readline()) == [FULL, FULL, 7 * GIB, 12 * GIB]
    shown = by_process(guest)
    process.communicate("\n")
    assert shown == {process.pid: ([2 * GIB, 0], [1, 0])}


def test_contexts_stay_charged_after_closing_every_descriptor(host, new_guest):
    code = (
        INITIALISED
        + """
must(cu.cuDevicePrimaryCtxRetain(0)), must(cu.cuCtxCreate(None, 0, 0))
os.closerange(400, 1024)
import subprocess
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
must(cu.cuMemAlloc(1 << 20))
print(json.dumps(must(cu.cuMemGetInfo())[0]), flush=True)
sys.stdin.readline()
"""
    )
    guest = new_guest(share(host.uuids[0], GIB, context_bytes=CONTEXT))
    # A refused allocation of another process clears the slots of dead processes.
    other = PRELUDE + "assert cu.cuMemAlloc(1 << 31)[0] != 0"
    process = guest.start(PYTHON, "-c", code, other, stdin=-1)
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    shown = by_process(guest)
    process.communicate("\n")
    assert json.loads(line) == GIB - 2 * CONTEXT - MIB
    assert shown == {process.pid: ([2 * CONTEXT + MIB, 0], [2, 0])}


def test_many_contexts_are_shown_as_255_and_charged_each(host, new_guest):
    code = (
        INITIALISED
        + """
for _ in range(300):
    must(cu.cuCtxCreate(None, 0, 0)), must(cu.cuCtxPopCurrent())
must(cu.cuCtxSetCurrent(must(cu.cuCtxCreate(None, 0, 0))))
print(json.dumps(must(cu.cuMemGetInfo())[0]), flush=True)
sys.stdin.readline()
"""
    )
    guest = new_guest(share(host.uuids[0], GIB, context_bytes=MIB))
    process = guest.start(PYTHON, "-c", code, stdin=-1)
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    shown = by_process(guest)
    process.communicate("\n")
    assert json.loads(line) == (1024 - 301) * MIB
    assert shown == {process.pid: ([301 * MIB, 0], [255, 0])}


def test_a_forked_child_has_no_context_of_its_parents_and_waits_for_none(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB, context_bytes=CONTEXT))
    parent = guest.start(client("retains"), "100", stdin=-1, start_new_session=True)
    try:
        line = parent.stdout.readline()
        assert line, parent.communicate()[1]
        # The child took a slot for its allocation; the slot's content is the child's own.
        shown = by_process(guest)
        assert set(shown) == {int(line)}
        assert shown[int(line)][1] in ([1, 0], [2, 0])
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_a_killed_processs_contexts_are_cleared_by_the_next_reader(host, new_guest):
    hold = INITIALISED + "must(cu.cuCtxCreate(None, 0, 0)); print(1, flush=True); sys.stdin.read()"
    look = INITIALISED + (
        "must(cu.cuCtxCreate(None, 0, 0)); print(1, flush=True); sys.stdin.readline()\n"
        "print(json.dumps(must(cu.cuMemGetInfo())[0]), flush=True); sys.stdin.readline()"
    )
    guest = new_guest(share(host.uuids[0], GIB, context_bytes=CONTEXT))
    watcher, *holders = [guest.start(PYTHON, "-c", code, stdin=-1) for code in (look, hold, hold)]
    for process in (watcher, *holders):
        assert process.stdout.readline() == "1\n"
    for holder in holders:
        holder.kill()
        holder.communicate()
    time.sleep(0.1)
    watcher.stdin.write("\n")
    watcher.stdin.flush()
    free = json.loads(watcher.stdout.readline())
    # Every slot of the page, of live and dead processes.
    seen = guest.read_usage().gpus[0]
    watcher.communicate("\n")
    assert (free, seen.contexts, seen.held_bytes) == (GIB - CONTEXT, 1, CONTEXT)
