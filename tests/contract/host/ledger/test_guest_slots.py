"""Whether a host process is listed in a container's usage page."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from support.waiting import until
from vcuda_oci.ledger import liveness
from vcuda_oci.pages import layout
from vcuda_plugin.agent.bypass import guest_slots
from vcuda_plugin.agent.bypass.guest_slots import Inside

SLOTS_AT = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE


def page(folder: Path, *slots: tuple[int, int]) -> str:
    """A usage page with first slots that hold (pid, start time)."""
    content = bytearray(layout.empty_usage_page().ljust(layout.USAGE_SIZE, b"\0"))
    struct.pack_into("=I", content, 12, len(slots))
    for index, (pid, started) in enumerate(slots):
        struct.pack_into(
            "=IIQ", content, SLOTS_AT + index * layout.USAGE_SLOT_SIZE, pid, 1, started
        )
    (folder / "usage").write_bytes(content)
    return str(folder)


def test_a_process_is_known_by_its_pid_and_its_start(tmp_path: Path) -> None:
    slots = guest_slots.read(page(tmp_path, (4, 100), (0, 0), (9, 0)))
    assert [
        guest_slots.knows(slots, process)
        for process in (Inside(4, 100), Inside(4, 101), Inside(9, 77), Inside(5, 100))
    ] == [True, False, True, False]


@pytest.mark.parametrize("size", [0, 13, SLOTS_AT + 7, SLOTS_AT + 330, layout.USAGE_SIZE + 5])
@pytest.mark.parametrize("fill", [b"\0", b"x", b"\xff"])
def test_a_page_that_was_scribbled_over_or_cut_short_makes_no_process_known(
    tmp_path: Path, fill: bytes, size: int
) -> None:
    (tmp_path / "usage").write_bytes(fill * size)
    assert not guest_slots.knows(guest_slots.read(str(tmp_path)), Inside(7, 100))


def test_a_process_is_what_it_is_in_its_own_pid_namespace() -> None:
    command = ["unshare", "--pid", "--fork", "--kill-child", "sleep", "100"]
    with subprocess.Popen(command) as outer:
        try:
            child = _child_of(outer.pid)
            assert guest_slots.inside(child) == Inside(1, liveness.start_time(child))
        finally:
            outer.kill()


def test_in_a_time_namespace_of_its_own_the_start_does_not_count() -> None:
    command = ["unshare", "--time", "--boottime", "5000", "--fork", "--kill-child", "sleep", "100"]
    with subprocess.Popen(command) as outer:
        try:
            process = guest_slots.inside(_child_of(outer.pid))
            assert process is not None
            assert guest_slots.knows(frozenset({(process.pid, 12345)}), process)
        finally:
            outer.kill()


def test_a_process_that_ends_is_not_reported() -> None:
    with subprocess.Popen(["true"]) as process:
        until(lambda: not liveness.start_time(process.pid))
        assert guest_slots.inside(process.pid) is None
    assert guest_slots.inside(process.pid) is None


def _child_of(pid: int) -> int:
    """Once it runs what it was started for."""

    def found() -> int:
        with open(f"/proc/{pid}/task/{pid}/children") as line:
            children = line.read().split()
        if not children:
            return 0
        with open(f"/proc/{children[0]}/comm") as comm:
            return int(children[0]) if comm.read() == "sleep\n" else 0

    return until(found)
