"""The software GPU's clock, as unkind as hardware's: slices, switches, MPS, graphs, options.

All of it runs in virtual time.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.softgpu.softgpu_clock import (
    ONE_KERNEL,
    held_ms,
    judge,
    near,
    run_together,
    start_together,
)
from support.softgpu.softgpu_host import BUILT, SoftGpu, answer


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
kill(int(open({str(pid)!r}).read()))
ok(cuda.cuCtxSynchronize())
say(end=ms())
"""
    gpu = SoftGpu(tmp_path)
    started = start_together(gpu, victim, killer)
    end = answer(started[1])["end"]
    started[0].communicate()
    # At 10 ms it had 4 of its 20 ms; the dead process is noticed within 10 ms.
    assert 26 <= end <= 36


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
