"""The core limit: shares of GPU time that the software GPU really gave."""

from __future__ import annotations

import json
import os
import time

import pytest

from shim.guest import GIB, WORKLOAD, share

# Kernel length in microseconds, and how many are queued ahead (0: wait for each).
SHAPES = {
    "sync 5 ms": ("5000", "0"),
    "async 50 us": ("50", "64"),
    "async 1 ms": ("1000", "16"),
    "sync 300 ms": ("300000", "0"),
}
POINTS = 0.02


def busy(shape, seconds):
    kernel_us, depth = SHAPES[shape]
    return [WORKLOAD, "busy", "--seconds", str(seconds), "--kernel-us", kernel_us, "--async", depth]


@pytest.mark.parametrize(
    ("shape", "percent", "seconds"),
    [
        ("sync 5 ms", 30, 3),
        ("async 50 us", 30, 3),
        ("async 1 ms", 30, 3),
        ("async 1 ms", 80, 3),
        ("sync 5 ms", 10, 3),
        ("sync 300 ms", 50, 6),
    ],
)
def test_alone_on_a_gpu_a_container_gets_its_percent_and_no_more(
    host, new_guest, shape, percent, seconds
):
    guest = new_guest(share(host.uuids[0], GIB, percent))
    result = guest.json(*busy(shape, seconds))
    # Work is counted when it ends, so a window may hold one kernel more or less.
    one_kernel = int(SHAPES[shape][0]) / 1e6 / result["wall_seconds"]
    assert result["share"] == pytest.approx(percent / 100, abs=POINTS + one_kernel)


@pytest.mark.parametrize("shape", ["sync 5 ms", "async 1 ms", "async 50 us"])
def test_two_containers_share_one_gpu_as_they_were_promised(host, new_guest, tmp_path, shape):
    go = str(tmp_path / "go")
    small = new_guest(share(host.uuids[0], GIB, 30))
    large = new_guest(share(host.uuids[0], GIB, 70))
    both = [each.start(*busy(shape, 4), "--wait-file", go) for each in (small, large)]
    time.sleep(0.5)
    with open(go, "w", encoding="utf-8"):
        pass
    shares = []
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        shares.append(json.loads(out)["share"])
    assert shares == [pytest.approx(0.30, abs=POINTS), pytest.approx(0.70, abs=POINTS)]


def test_processes_of_one_container_share_its_percent(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 40))
    processes = [guest.start(*busy("async 1 ms", 3)) for _ in range(3)]
    outs = [process.communicate(timeout=60)[0] for process in processes]
    total = sum(json.loads(out)["share"] for out in outs)
    assert total == pytest.approx(0.40, abs=POINTS)


def test_a_container_with_the_whole_gpus_time_is_not_paced(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 100))
    assert guest.json(*busy("async 1 ms", 1))["share"] > 0.9
    assert guest.read_usage().gpus[0].throttled_ns == 0


def test_a_new_rate_is_followed_while_the_container_runs(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 20))
    process = guest.start(*busy("async 1 ms", 6))
    marks = []
    for rate in (200_000, 600_000):
        guest.write_limits([share(host.uuids[0], GIB, 20)._replace(rate_ppm=rate)])
        time.sleep(0.7)
        before, began = guest.read_usage().gpus[0].busy_ns, time.monotonic_ns()
        time.sleep(1.8)
        after, ended = guest.read_usage().gpus[0].busy_ns, time.monotonic_ns()
        marks.append((after - before) / (ended - began))
    process.communicate(timeout=60)
    assert marks == [pytest.approx(0.2, abs=POINTS), pytest.approx(0.6, abs=POINTS)]


def test_what_is_charged_is_what_the_gpu_did(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 50))
    result = guest.json(*busy("async 1 ms", 2))
    usage = guest.read_usage().gpus[0]
    charged = usage.busy_ns / 1e9
    assert charged == pytest.approx(result["kernels"] / 1e3, rel=0.03)
    assert usage.launches >= result["kernels"]
    assert usage.throttled_ns > 0


def test_a_waiting_program_costs_no_processor_time(host, new_guest):
    guest = new_guest(share(host.uuids[0], GIB, 10))
    process = guest.start(*busy("sync 300 ms", 4))
    process.stdout.read()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    # The rest is the software GPU and the loader.
    assert used.ru_utime + used.ru_stime < 0.4
