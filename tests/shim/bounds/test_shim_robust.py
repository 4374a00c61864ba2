"""Invalid pages, killed processes and numbers out of range: the limit holds without a crash."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import struct
import subprocess
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shim.conftest import LIBRARIES
from shim.memory.test_shim_memory import PRELUDE
from support.gpu.guest import BUILD, GIB, MIB, PYTHON, share
from vcuda_oci.pages import layout, page_reader

F_OFD_SETLK = 37
OK, FULL = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"


def ledger(root: str) -> dict[int, int]:
    """Memory of each process on GPU 0, from the software GPU itself."""
    code = (
        "import json, pynvml as nv; nv.nvmlInit();"
        "handle = nv.nvmlDeviceGetHandleByIndex(0);"
        "found = nv.nvmlDeviceGetComputeRunningProcesses(handle);"
        "print(json.dumps({p.pid: p.usedGpuMemory for p in found}))"
    )
    environment = {"LD_LIBRARY_PATH": os.path.join(root, LIBRARIES), "SOFTGPU_ROOT": root}
    out = subprocess.run(
        [PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout

    return {int(pid): held for pid, held in json.loads(out).items() if held}


def held_by_process(guest) -> dict[int, int]:
    with open(guest.usage, "rb") as usage:
        live = page_reader.live_slots(usage.fileno())
        found = page_reader.read_usage(usage.read(), live)
    return {each.pid: each.held_bytes[0] for each in found.processes if each.held_bytes[0]}


@pytest.mark.parametrize("seed", range(6))
def test_any_calls_leave_usage_equal_to_the_drivers_own_ledger(host, new_guest, client, seed):
    guest = new_guest(share(host.uuids[0], GIB))
    workers = [guest.start(client("any"), str(64 * MIB), str(seed * 10 + i)) for i in range(3)]
    time.sleep(0.5)
    for worker in workers:
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
        worker.send_signal(signal.SIGUSR1)
    for worker in workers:
        assert worker.stdout.readline() == "still\n", worker.communicate()[1]
    try:
        assert held_by_process(guest) == ledger(host.path)
        assert sum(held_by_process(guest).values()) <= GIB
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_sixty_four_processes_killed_at_random_leave_the_drivers_own_ledger(
    host, new_guest, client
):
    guest = new_guest(share(host.uuids[0], 4 * GIB))
    chance = random.Random(7)
    workers = [guest.start(client("any"), str(64 * MIB), str(i)) for i in range(64)]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n", worker.communicate()[1]
    chance.shuffle(workers)
    killed, kept = workers[:48], workers[48:]
    for worker in killed:
        time.sleep(chance.uniform(0, 0.02))
        worker.kill()
    for worker in kept:
        worker.send_signal(signal.SIGUSR1)
    try:
        for worker in kept:
            assert worker.stdout.readline() == "still\n", worker.communicate()[1]
        for worker in killed:
            worker.communicate()
        assert held_by_process(guest) == ledger(host.path)
    finally:
        for worker in kept:
            worker.kill()
            worker.communicate()
    assert held_by_process(guest) == {}
    # The next poll clears the dead processes' slots without help of a live process.
    code = PRELUDE + "print(json.dumps([free_now(), cu.cuMemAlloc(4 << 30)[0].name]))"
    assert guest.python(code) == [4 * GIB, OK]


def test_a_killed_process_leaves_every_view_within_100_ms(host, new_guest):
    looks = (
        PRELUDE
        + """
import pynvml as nv, time
nv.nvmlInit()
handle = nv.nvmlDeviceGetHandleByIndex(0)
def views():
    memory = nv.nvmlDeviceGetMemoryInfo(handle)
    return [free_now(), memory.used, len(nv.nvmlDeviceGetComputeRunningProcesses(handle))]
print(json.dumps(views()), flush=True)
sys.stdin.readline()
time.sleep(0.1)
print(json.dumps(views()), flush=True)
"""
    )
    hold = PRELUDE + "must(cu.cuMemAlloc(1 << 29)); print(1, flush=True); sys.stdin.read()"
    guest = new_guest(share(host.uuids[0], GIB))
    holder = guest.start(PYTHON, "-c", hold, stdin=-1)
    assert holder.stdout.readline() == "1\n"
    watcher = guest.start(PYTHON, "-c", looks, stdin=-1)
    assert watcher.stdout.readline() == f"[{GIB // 2}, {GIB // 2}, 1]\n"
    holder.kill()
    holder.communicate()
    assert held_by_process(guest) == {}
    out, err = watcher.communicate("\n", timeout=30)
    assert out == f"[{GIB}, 0, 0]\n", err


def test_more_processes_than_slots_get_a_clear_error_and_harm_no_other(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB))
    hold = PRELUDE + (
        "print(must(cu.cuMemAlloc(1 << 20)) is not None, flush=True); sys.stdin.readline();"
        "print(cu.cuMemAlloc(1 << 20)[0].name)"
    )
    first = guest.start(PYTHON, "-c", hold, stdin=-1)
    assert first.stdout.readline() == "True\n"
    # One descriptor may hold every lock that 255 processes would.
    with open(guest.usage, "r+b") as usage:
        for slot in range(1, layout.MAX_PROCESSES):
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE + slot, 1, 0)
            fcntl.fcntl(usage, F_OFD_SETLK, lock)
        code = PRELUDE + "print(json.dumps([cu.cuMemAlloc(1)[0].name for _ in range(3)]))"
        late = guest.start(PYTHON, "-c", code)
        out, err = late.communicate(timeout=60)
        assert out == '["CUDA_ERROR_OPERATING_SYSTEM", "CUDA_ERROR_OPERATING_SYSTEM", ' + (
            '"CUDA_ERROR_OPERATING_SYSTEM"]\n'
        )
        assert err.count("\n") == 1
        assert "256 processes" in err
        assert first.communicate("\n", timeout=60)[0] == OK + "\n"
    assert guest.python(code) == [OK] * 3


@pytest.mark.parametrize("what", ["usage", "slots", "head"])
def test_a_scribbled_usage_page_never_crashes_or_hangs_a_call(host, new_guest, client, what):
    guest = new_guest(share(host.uuids[0], GIB))
    ranges = {
        "usage": (0, layout.USAGE_SIZE),
        "slots": (layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE, 3000),
        "head": (0, layout.USAGE_HEAD_SIZE),
    }
    start, size = ranges[what]
    chance = random.Random(3)
    process = guest.start(client("bears"), "4")
    assert process.stdout.readline() == "ready\n", process.communicate()[1]
    stop = threading.Event()

    def scribble() -> None:
        with open(guest.usage, "r+b", buffering=0) as usage:
            while not stop.wait(0.002):
                usage.seek(start + chance.randrange(size - 8))
                usage.write(chance.randbytes(8))

    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        out, err = process.communicate(timeout=60)
    finally:
        stop.set()
        thread.join()
    assert process.returncode == 0, err
    assert int(out.split('"slowest": ')[1].split(",")[0]) <= 1500
    with open(guest.usage, "rb") as usage:
        page = usage.read()
    try:
        page_reader.read_usage(page)
    except ValueError:
        assert what != "slots"


@settings(max_examples=200)
@given(st.binary(max_size=64), st.integers(0, layout.USAGE_SIZE), st.integers(0, layout.USAGE_SIZE))
def test_the_host_reads_any_bytes_or_says_that_they_are_no_page(noise, at, size):
    page = bytearray(layout.empty_usage_page().ljust(layout.USAGE_SIZE, b"\0"))
    page[at : at + len(noise)] = noise
    for cut in (bytes(page[:size]), bytes(page)):
        try:
            assert len(page_reader.read_usage(cut).gpus) == layout.MAX_GPUS
        except ValueError as refusal:
            assert "page has" in str(refusal)


@pytest.mark.parametrize("seed", range(12))
def test_a_limits_page_of_random_bytes_behind_its_head_grants_nothing_and_crashes_nothing(
    host, new_guest, client, seed
):
    guest = new_guest(share(host.uuids[0], GIB))
    chance = random.Random(seed)
    with open(guest.limits, "r+b") as limits:
        limits.seek(12)
        # driver_dir stays valid: it locates the library, without which no call reaches the shim.
        limits.write(chance.randbytes(12))
        limits.seek(128)
        limits.write(chance.randbytes(layout.LIMITS_SIZE - 128))
    code = PRELUDE + "print(json.dumps([cu.cuMemAlloc(4096)[0].name, free_now()]))"
    process = guest.start(PYTHON, "-c", code)
    out, err = process.communicate(timeout=60)
    assert process.returncode in (0, 1), err
    assert OK not in out


def test_a_limits_page_under_the_hosts_pen_is_read_again(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB))
    with open(guest.limits, "r+b") as limits:
        good = limits.read()
        limits.seek(16)
        limits.write((7).to_bytes(8, "little"))
        limits.seek(128)
        limits.write(b"\0" * 48)
        limits.flush()
        code = PRELUDE + "print(json.dumps(cu.cuMemAlloc(4096)[0].name))"
        process = guest.start(
            PYTHON,
            "-c",
            code.replace("must(cu.cuInit(0))", "must(cu.cuInit(0)); print(1, flush=True)"),
        )
        assert process.stdout.readline() == "1\n"
        time.sleep(0.02)
        limits.seek(0)
        limits.write(good)
        limits.seek(16)
        limits.write((8).to_bytes(8, "little"))
    assert process.communicate(timeout=60)[0] == f'"{OK}"\n'


def test_threads_that_allocate_during_forks_free_everything(host, new_guest, client):
    guest = new_guest(share(host.uuids[0], GIB))
    assert guest.json(client("threads"), str(GIB), "60") == GIB


def test_sizes_beyond_every_memory_are_refused_in_each_family(new_mock_guest, client):
    assert new_mock_guest(GIB).json(client("huge")) == [2] * 8


def test_a_musl_program_is_refused_by_its_loader_and_reaches_no_driver(built, tmp_path):
    source = tmp_path / "musl.c"
    source.write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\n"
        "int main (int c, char **v) { void *h = dlopen (v[1], RTLD_NOW);\n"
        'printf ("%d %s", h != 0, h ? "" : dlerror ()); return 0; }\n'
    )
    program = str(tmp_path / "musl")
    subprocess.run(["musl-gcc", "-o", program, str(source)], check=True)
    shim = os.path.join(BUILD, "lib", "libvcuda.so.1")
    out = subprocess.run([program, shim], capture_output=True, text=True, check=True).stdout
    assert out.startswith("0 ")
    assert "libvcuda.so.1" in out
