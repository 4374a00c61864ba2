"""The software GPU's clock, as unkind as hardware's: slices, switches, overlap, copies, MPS.

All of it runs in virtual time. A moment is read after a wait, which costs some readings of the
clock of 0.1 us, so moments are compared to 0.02 ms.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.softgpu_clock import held_ms, judge, run_together, start_together
from support.softgpu_host import BUILT, SoftGpu, answer
from support.softgpu_model import Turns


def near(milliseconds: float) -> Any:
    return pytest.approx(milliseconds, abs=0.02)


# One kernel, begun at a moment, with an event before and after it.
ONE_KERNEL = """
start()
before, after = events(2)
kernel = wide(b"grid")
at(%g)
ok(cuda.cuEventRecord(before, 0))
launch(kernel, %g)
ok(cuda.cuEventRecord(after, 0))
say(end=until(after), pair=apart(before, after))
"""


def test_two_processes_alternate_in_slices_and_each_switch_costs(tmp_path: Path) -> None:
    """
    first   0──2      4.2──6.2       8.4──10.4        12.6──14.6        16.8──18.8
    second      2.1──4.1      6.3──8.3        10.5──12.5        14.7──16.7        18.9──20.9
    """
    gpu = SoftGpu(tmp_path)
    first, second = run_together(gpu, ONE_KERNEL % (0, 10), ONE_KERNEL % (0.5, 10))
    assert (first["end"], second["end"]) == (near(18.8), near(20.9))
    account = judge(gpu)["gpus"][0]
    assert account["switch_ns"] == 900_000
    assert account["busy_ns"] == 20_000_000
    assert held_ms(gpu) == [10, 10]


def test_an_event_pair_contains_the_other_processes_slices(tmp_path: Path) -> None:
    first, second = run_together(SoftGpu(tmp_path), ONE_KERNEL % (0, 10), ONE_KERNEL % (0.5, 10))
    assert first["pair"] == near(18.8)
    # Its first record waits for its first slice.
    assert second["pair"] == near(20.9 - 2.1)


def test_slice_and_switch_cost_are_as_stated(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--slice", "5ms", "--switch-cost", "500us")
    first, second = run_together(gpu, ONE_KERNEL % (0, 10), ONE_KERNEL % (0.5, 10))
    assert (first["end"], second["end"]) == (near(16), near(21.5))


def test_without_preemption_a_slice_ends_with_a_kernel(tmp_path: Path) -> None:
    script = """
start()
kernel = wide(b"grid")
done = events(2)
at(%g)
for event in done:
    launch(kernel, 5)
    ok(cuda.cuEventRecord(event, 0))
say(ends=[until(event) for event in done])
"""
    gpu = SoftGpu(tmp_path, "--no-preemption")
    first, second = run_together(gpu, script % 0, script % 0.5)
    assert first["ends"] == [near(5), near(15.2)]
    assert second["ends"] == [near(10.1), near(20.3)]
    assert held_ms(gpu) == [10, 10]


def test_a_process_alone_pays_for_no_switch_even_after_an_idle_gap(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path)
    (one,) = run_together(
        gpu,
        """
start()
kernel = wide(b"grid")
ends = []
for moment in (0, 10, 20):
    at(moment)
    launch(kernel, 5)
    ok(cuda.cuCtxSynchronize())
    ends.append(ms())
say(ends=ends)
""",
    )
    assert one["ends"] == [near(5), near(15), near(25)]
    assert judge(gpu)["gpus"][0]["switch_ns"] == 0


def test_a_process_without_work_is_skipped_at_once(tmp_path: Path) -> None:
    """The second one's short kernel ends amid its slice, and the first one goes on at once."""
    gpu = SoftGpu(tmp_path)
    first, second = run_together(gpu, ONE_KERNEL % (0, 5), ONE_KERNEL % (0.5, 0.3))
    assert second["end"] == near(2 + 0.1 + 0.3)
    assert first["end"] == near(2.4 + 0.1 + 3)
    assert judge(gpu)["gpus"][0]["switch_ns"] == 200_000


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_kernels_of_an_eighth_overlap_on_so_many_streams(tmp_path: Path, count: int) -> None:
    gpu = SoftGpu(tmp_path)
    (one,) = run_together(
        gpu,
        f"""
start()
kernel, own = wide(b"grid"), streams({count})
at(0)
for i in range(8):
    launch(kernel, 4, stream=own[i % {count}], blocks=33, threads=1024)
ok(cuda.cuCtxSynchronize())
say(end=ms())
""",
    )
    assert one["end"] == near(4 * 8 / count)
    assert held_ms(gpu) == [pytest.approx(4 * 8 / count, abs=0.02)]


def test_kernels_begin_in_the_order_of_submission_as_far_as_they_fit(tmp_path: Path) -> None:
    """The third would fit beside the first, but no kernel overtakes another."""
    (one,) = run_together(
        SoftGpu(tmp_path),
        """
start()
kernel, own = wide(b"wide"), streams(3)
at(0)
for stream, percent in zip(own, (60, 60, 30)):
    launch(kernel, 4, percent, stream)
say(ends=[until(stream) for stream in own])
""",
    )
    assert one["ends"] == [near(4), near(8), near(8)]


def test_the_module_or_the_grid_states_a_kernels_width(tmp_path: Path) -> None:
    """Two halves fit; a grid of all threads does not fit beside anything."""
    (one,) = run_together(
        SoftGpu(tmp_path),
        """
start()
half, grid, own = wide(b"half"), wide(b"grid"), streams(3)
at(0)
launch(half, 2, stream=own[0])
launch(half, 2, stream=own[1])
launch(grid, 2, stream=own[2], blocks=132 * 2, threads=1024)
say(ends=[until(stream) for stream in own])
""",
    )
    assert one["ends"] == [near(2), near(2), near(4)]


def test_the_streams_of_a_preempted_process_stop_and_go_on_together(tmp_path: Path) -> None:
    two_streams = """
start()
kernel, own = wide(b"half"), streams(2)
at(0)
for stream in own:
    launch(kernel, 3, stream=stream)
say(ends=[until(stream) for stream in own])
"""
    gpu = SoftGpu(tmp_path)
    first, second = run_together(gpu, two_streams, ONE_KERNEL % (0.5, 1))
    assert second["end"] == near(2 + 0.1 + 1)
    assert first["ends"] == [near(3.1 + 0.1 + 1)] * 2
    assert sorted(held_ms(gpu)) == [1, near(3)]


def test_a_record_is_stamped_when_its_own_stream_reaches_it(tmp_path: Path) -> None:
    (one,) = run_together(
        SoftGpu(tmp_path),
        """
start()
kernel, (left, right), (before, after) = wide(b"half"), streams(2), events(2)
at(0)
launch(kernel, 8, stream=left)
ok(cuda.cuEventRecord(before, right))
launch(kernel, 2, stream=right)
ok(cuda.cuEventRecord(after, right))
say(end=until(after), pair=apart(before, after), other=until(left))
""",
    )
    assert one == {"end": near(2), "pair": near(2), "other": near(8)}


def test_a_stream_waits_for_another_streams_event(tmp_path: Path) -> None:
    (one,) = run_together(
        SoftGpu(tmp_path),
        """
start()
kernel, (left, right, free), (event,) = wide(b"wide"), streams(3), events(1)
at(0)
launch(kernel, 5, 30, left)
ok(cuda.cuEventRecord(event, left))
ok(cuda.cuStreamWaitEvent(right, event, 0))
launch(kernel, 2, 30, right)
launch(kernel, 2, 30, free)
submitted = ms()
say(submitted=submitted, ends=[until(stream) for stream in (free, left, right)])
""",
    )
    assert one["submitted"] == near(0)
    assert one["ends"] == [near(2), near(5), near(7)]


def test_the_legacy_stream_is_a_barrier_between_blocking_streams_only(tmp_path: Path) -> None:
    (one,) = run_together(
        SoftGpu(tmp_path),
        """
start()
kernel, (before, after), (free,), (event,) = wide(b"wide"), streams(2), streams(1, 1), events(1)
at(0)
launch(kernel, 3, 20, before)
launch(kernel, 2, 20, 0)
ok(cuda.cuEventRecord(event, 0))
launch(kernel, 1, 20, after)
launch(kernel, 4, 20, free)
say(ends=[until(stream) for stream in (before, free, event, after)])
""",
    )
    assert one["ends"] == [near(3), near(4), near(5), near(6)]


BESIDE = """
start()
MIB = 1 << 20
kernel, (work, to, other, back) = wide(b"grid"), streams(4)
memory, twin = (ok(cuda.cuMemAlloc(4 * MIB)) for _ in range(2))
buffer = ctypes.create_string_buffer(4 * MIB)
host = ctypes.addressof(buffer)
"""


def test_copies_run_beside_kernels_one_in_each_direction(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--bus-rate", "1GiB/s")
    (one,) = run_together(
        gpu,
        BESIDE
        + """
at(0)
launch(kernel, 5, stream=work)
ok(cuda.cuMemcpyHtoDAsync(memory, host, 4 * MIB, to))
ok(cuda.cuMemcpyHtoDAsync(twin, host, 4 * MIB, other))
ok(cuda.cuMemcpyDtoHAsync(host, memory, 4 * MIB, back))
launch(kernel, 1, stream=to)
submitted = ms()
say(submitted=submitted, ends=[until(stream) for stream in (back, to, work, other)])
""",
    )
    copy = 4000 / 1024
    assert one["submitted"] == near(0)
    assert one["ends"] == [near(copy), near(copy + 1), near(5), near(2 * copy)]
    # Only kernels count as work: the copies do not.
    assert held_ms(gpu) == [near(5)]


def test_copies_go_on_while_another_process_has_the_gpu(tmp_path: Path) -> None:
    copies = (
        BESIDE
        + """
at(0.5)
ok(cuda.cuMemcpyHtoDAsync(memory, host, 4 * MIB, to))
say(end=until(to))
"""
    )
    gpu = SoftGpu(tmp_path, "--bus-rate", "1GiB/s")
    busy, copier = run_together(gpu, ONE_KERNEL % (0, 8), copies)
    assert copier["end"] == near(0.5 + 4000 / 1024)
    assert busy["end"] == near(8)
    assert judge(gpu)["gpus"][0]["switch_ns"] == 0


def test_a_synchronous_copy_waits_for_the_bus(tmp_path: Path) -> None:
    (one,) = run_together(
        SoftGpu(tmp_path, "--bus-rate", "1GiB/s"),
        BESIDE + "at(0)\nok(cuda.cuMemcpyHtoD(memory, buffer.raw, 4 * MIB))\nsay(end=ms())\n",
    )
    assert one["end"] == near(4000 / 1024)


HALF = """
start()
kernel = wide(b"half")
at(%g)
launch(kernel, 10)
ok(cuda.cuCtxSynchronize())
say(end=ms())
"""


def test_under_mps_kernels_of_all_processes_run_at_once(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--mps")
    ends = [one["end"] for one in run_together(gpu, HALF % 0, HALF % 4, HALF % 6)]
    # The third fits when the first has ended.
    assert ends == [near(10), near(14), near(20)]
    account = judge(gpu)["gpus"][0]
    assert (account["switch_ns"], account["busy_ns"] / 1e6) == (0, near(20))
    assert held_ms(gpu) == [10, 10, 10]


def test_submissions_take_the_threads_time(tmp_path: Path) -> None:
    script = """
start()
kernel, (event,) = wide(b"grid"), events(1)
before = time.monotonic_ns()
for _ in range(500):
    launch(kernel, 0.01)
    ok(cuda.cuEventRecord(event, 0))
say(took=time.monotonic_ns() - before)
"""
    for number, (options, each) in enumerate(
        [((), 2000), (("--submit-time", "10us"), 10_000), (("--clock", "kind"), 100)]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (one,) = run_together(SoftGpu(folder, *options), script)
        assert one["took"] == pytest.approx(1000 * each, rel=0.01)


def test_a_graph_counts_its_kernels_and_lets_others_in_between_them(tmp_path: Path) -> None:
    graph = """
start()
kernel, (stream,) = wide(b"grid"), streams(1)
mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
ok(cuda.cuStreamBeginCapture(stream, mode))
for _ in range(4):
    launch(kernel, 1.5, stream=stream)
graph = ok(cuda.cuGraphInstantiate(ok(cuda.cuStreamEndCapture(stream)), 0))
at(0)
ok(cuda.cuGraphLaunch(graph, stream))
say(end=until(stream))
"""
    gpu = SoftGpu(tmp_path, "--no-preemption")
    first, second = run_together(gpu, graph, ONE_KERNEL % (0.5, 1))
    assert second["end"] == near(3 + 0.1 + 1)
    assert first["end"] == near(4.1 + 0.1 + 3)
    ended = judge(gpu)["gpus"][0]["ended"]
    assert sorted(one["kernels_finished"] for one in ended) == [1, 4]


def test_a_process_killed_amid_its_slice_gives_the_gpu_to_the_other(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    victim = f"""
start()
kernel = wide(b"grid")
open({str(pid)!r}, "w").write(str(os.getpid()))
at(0)
launch(kernel, 1000)
time.sleep(100)
"""
    killer = f"""
start()
kernel = wide(b"grid")
at(0.5)
launch(kernel, 20)
at(10)
dead = int(open({str(pid)!r}).read())
os.kill(dead, signal.SIGKILL)
while open(f"/proc/{{dead}}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX":
    pass
ok(cuda.cuCtxSynchronize())
say(end=ms())
"""
    gpu = SoftGpu(tmp_path)
    started = start_together(gpu, victim, killer)
    end = answer(started[1])["end"]
    started[0].communicate()
    # At 10 ms it had 4 of its 20 ms; the dead process is noticed within 10 ms.
    assert 26 <= end <= 36


MIX = """
import random
start()
kernel, own, rng = wide(b"wide"), streams(3), random.Random({seed})
total = 0
at(rng.randrange(3))
for _ in range(40):
    time_us, percent = rng.randrange(10, 3000), rng.choice([10, 30, 50, 100])
    launch(kernel, time_us / 1000, percent, rng.choice([*own, 0]))
    total += time_us
    if rng.random() < 0.2:
        ok(cuda.cuStreamSynchronize(rng.choice(own)))
    if rng.random() < 0.1:
        time.sleep(rng.randrange(5000) / 1e6)
ok(cuda.cuCtxSynchronize())
say(total_us=total, end=ms())
"""


def mixed(gpu: SoftGpu, seed: int) -> tuple[list[Any], Any]:
    said = run_together(gpu, *[MIX.format(seed=10 * seed + number) for number in range(3)])
    account = judge(gpu)["gpus"][0]
    for one in account["ended"]:
        del one["pid"], one["pid_namespace"]
    return said, account


@pytest.mark.parametrize("options", [(), ("--no-preemption",), ("--slice", "500us"), ("--mps",)])
def test_the_same_work_gives_the_same_times_on_each_run(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    runs = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        runs.append(mixed(SoftGpu(folder, "--seed", "1", *options), 7))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("seed", range(4))
def test_the_parts_of_the_gpus_time_sum_to_all_of_it(tmp_path: Path, seed: int) -> None:
    options = random.Random(seed).choice([(), ("--no-preemption",), ("--switch-cost", "0us")])
    said, account = mixed(SoftGpu(tmp_path, *options), seed)
    held = [one["held_ns"] for one in account["ended"]]
    assert sum(held) == account["busy_ns"]
    elapsed = account["clock_ns"] - account["begun_ns"]
    assert account["busy_ns"] + account["switch_ns"] + account["idle_ns"] == elapsed
    assert sum(one["kernels_finished"] for one in account["ended"]) == 120
    # Overlap makes it less than the sum of the kernels' times, and never more.
    assert sum(held) <= 1000 * sum(one["total_us"] for one in said)


LATENESS = """
import random
start()
MIB = 1 << 20
kernel, own, rng = wide(b"wide"), streams(3) + streams(2, 1), random.Random({seed})
memory, buffer = ok(cuda.cuMemAlloc(4 * MIB)), ctypes.create_string_buffer(4 * MIB)
(base,) = events(1)
at(rng.randrange(3))
ok(cuda.cuEventRecord(base, own[0]))
waits = []
for _ in range(100):
    stream, (event,) = rng.choice([*own, 0]), events(1)
    if rng.random() < 0.7:
        launch(kernel, rng.randrange(10, 2500) / 1000, rng.choice([10, 30, 60, 100]), stream)
    else:
        host, bytes = ctypes.addressof(buffer), rng.randrange(1, 4 * MIB)
        ok(cuda.cuMemcpyHtoDAsync(memory, host, bytes, stream))
    ok(cuda.cuEventRecord(event, stream))
    if rng.random() < 0.2:
        ok(cuda.cuStreamWaitEvent(rng.choice(own), event, 0))
    elif rng.random() < 0.4:
        began = time.monotonic_ns()
        ok(cuda.cuEventSynchronize(event))
        now = time.monotonic_ns()
        stamp = ok(cuda.cuEventElapsedTime(base, event)) * 1e6
        waits.append((now - stamp, now - began > 3000))
ok(cuda.cuCtxSynchronize())
least = min(moment for moment, _ in waits)
say(late=max(moment - least for moment, waited in waits if waited), waits=len(waits))
"""


@pytest.mark.parametrize(
    "options", [(), ("--no-preemption",), ("--switch-cost", "1ms"), ("--mps",)]
)
def test_a_waiter_wakes_at_the_very_moment(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The bound that a waiter sleeps until is never later than the end of what it waits for."""
    gpu = SoftGpu(tmp_path, "--bus-rate", "1GiB/s", "--submit-time", "0us", *options)
    for one in run_together(gpu, *[LATENESS.format(seed=seed) for seed in range(3)]):
        assert one["waits"] > 10
        assert one["late"] < 5000  # other processes' readings of the clock


OPEN_LOOP = """
start()
kernel, (base,), plan = wide(b"wide"), events(1), {plan}
ends = events(len(plan))
at(0)
ok(cuda.cuEventRecord(base, 0))
for (moment_us, time_us), event in zip(plan, ends):
    at(moment_us / 1000)
    launch(kernel, time_us / 1000)
    ok(cuda.cuEventRecord(event, 0))
ok(cuda.cuCtxSynchronize())
say(ends=[apart(base, event) for event in ends])
"""


def planned(rng: random.Random, number: int) -> list[tuple[int, int]]:
    """Twelve kernels; no two processes submit at once."""
    moments = sorted(rng.sample(range(500), 12))
    return [(100 * moment + 30 * number, rng.randrange(20, 6000)) for moment in moments]


@pytest.mark.parametrize("seed", range(6))
def test_kernels_end_when_a_second_model_says(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    plans = [planned(rng, number) for number in range(3)]
    slice_us, switch_us = rng.choice([500, 2000]), rng.choice([0, 100, 700])
    preempts = seed % 2 == 0
    options = ["--slice", f"{slice_us}us", "--switch-cost", f"{switch_us}us"]
    gpu = SoftGpu(tmp_path, *options, *([] if preempts else ["--no-preemption"]))
    said = run_together(gpu, *[OPEN_LOOP.format(plan=plan) for plan in plans])
    expected = Turns(plans, slice_us, switch_us, preempts).run()
    assert [one["ends"] for one in said] == [[near(end) for end in ends] for ends in expected]


@pytest.mark.parametrize("seed", range(3))
def test_every_kernel_of_a_lane_gets_exactly_its_time(tmp_path: Path, seed: int) -> None:
    """Kernels as wide as the GPU cannot overlap: what is held is the sum of their times."""
    whole = MIX.replace("rng.choice([10, 30, 50, 100])", "100")
    gpu = SoftGpu(tmp_path)
    said = run_together(gpu, *[whole.format(seed=100 * seed + number) for number in range(3)])
    assert sorted(held_ms(gpu)) == sorted(one["total_us"] / 1000 for one in said)


def test_time_prints_json_and_text(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--gpus", "2", "--seed", "1")
    process = gpu.start_workload("busy", "--seconds", "30", "--kernel-us", "1000")
    tool = str(BUILT / "softgpu")
    for _ in range(1000):
        found = json.loads(gpu.run(tool, "time", str(gpu.root), "--json").stdout)
        live = found["gpus"][0]["processes"]
        if live and live[0]["kernels_finished"]:
            break
    assert found["clock"] == "unkind"
    first, second = found["gpus"]
    keys = ["uuid", "begun_ns", "clock_ns", "busy_ns", "switch_ns", "idle_ns", "processes", "ended"]
    assert [list(first), list(second)] == [keys, keys]
    (one,) = live
    assert one["pid"] == process.pid
    assert one["command"] == "vcuda-workload"
    assert one["pid_namespace"] == (Path("/proc/self/ns/pid").stat().st_ino)
    assert 0 < one["held_ns"] == first["busy_ns"]
    assert one["kernels_submitted"] - one["kernels_finished"] in (0, 1)
    assert second["processes"] == first["ended"] == []
    text = gpu.run(tool, "time", str(gpu.root)).stdout.splitlines()
    assert text[0].startswith(f"{first['uuid']}  unkind clock at ")
    assert text[1].startswith(f"  pid {process.pid} of namespace ")
    assert len(text) == 3
    process.kill()
    process.communicate()


SLICES = "MPS has no time slices; leave --mps out"
NOT_KIND = "the kind clock has no such thing; leave --clock kind out"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--clock", "cruel"], "--clock: cruel; give kind or unkind"),
        (
            ["--switch-cost", "-1us"],
            "--switch-cost: -1us; give a time such as 2ms, from 0us to 10s",
        ),
        (["--switch-cost", "11s"], "--switch-cost: 11s; give a time such as 2ms, from 0us to 10s"),
        (["--submit-time", "2"], "--submit-time: 2; give a time such as 2ms, from 0us to 10s"),
        (["--slice", "0us"], "--slice: 0us; give a time such as 2ms, from 1us to 10s"),
        (["--mps", "--slice", "1ms"], f"--slice: {SLICES}"),
        (["--no-preemption", "--mps"], f"--no-preemption: {SLICES}"),
        (["--mps", "--switch-cost", "1us"], f"--switch-cost: {SLICES}"),
        (["--clock", "kind", "--mps"], f"--mps: {NOT_KIND}"),
        (["--clock", "kind", "--submit-time", "1us"], f"--submit-time: {NOT_KIND}"),
    ],
)
def test_options_that_make_no_sense_give_one_line(
    tmp_path: Path, options: list[str], line: str
) -> None:
    command: list[Any] = [BUILT / "softgpu", "create", tmp_path / "root", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, f"softgpu: {line}\n")
    assert not (tmp_path / "root").exists()


def test_time_of_a_folder_without_a_gpu_gives_one_line(tmp_path: Path) -> None:
    command: list[Any] = [BUILT / "softgpu", "time", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        f"softgpu: {tmp_path}: no driver root of this software GPU;"
        " name the folder that create was given\n"
    )
