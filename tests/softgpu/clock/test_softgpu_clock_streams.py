"""The clock of streams and copies, to the nanosecond in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.softgpu.softgpu_clock import ONE_KERNEL, held_ms, judge, near, run_together
from support.softgpu.softgpu_host import SoftGpu


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
