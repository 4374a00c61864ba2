"""Processes of one container take its GPU time in the order in which they began to wait for it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from shim.conftest import Clients, DriverRoot
from shim.policy_node import PolicyNode
from support.gpu.guest import GIB, WORKLOAD, Guest, share, then_enter
from support.softgpu.virtual_time import together
from support.waiting import until

CORE = 30
# All begin at once, so each finds its first kernel as long as the first ones of all, and 20 ms of
# five cost 450.
LEAST_IN_ALL = {100: 0.28, 1000: 0.28, 20_000: 0.16}
LINE = 1 << 56  # VCUDA_USAGE_LINE_LOCK: a process that waits holds a lock on a byte after it


def busy(seconds: float, kernel_us: int, ahead: int) -> list[str]:
    shape = ["--kernel-us", str(kernel_us), "--async", str(ahead)]
    return [WORKLOAD, "busy", "--seconds", str(seconds), *shape]


def are_even(shares: list[float], kernel_us: int) -> bool:
    # 6 s have 18 kernels of 20 ms for each of five, and 90 bursts of 4 portions of random length.
    spread = 0.15 if kernel_us == 20_000 else 0.1
    mean = sum(shares) / len(shares)
    return max(abs(one - mean) for one in shares) < spread * mean


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize(("kernel_us", "ahead"), [(100, 0), (1000, 4), (20_000, 2)])
def test_busy_processes_have_equal_parts_of_their_containers_share(
    host: DriverRoot,
    new_guest: Callable[..., Guest],
    tmp_path: Path,
    count: int,
    kernel_us: int,
    ahead: int,
) -> None:
    guest = new_guest(share(host.uuids[0], GIB, CORE))
    found = together(tmp_path, *[(guest, busy(6, kernel_us, ahead))] * count)
    shares = [one["share"] for one in found]
    assert are_even(shares, kernel_us), shares
    assert LEAST_IN_ALL[kernel_us] < sum(shares) < CORE / 100 + 0.005


@pytest.mark.parametrize(("kernel_us", "count", "core"), [(100, 2, 99), (100, 4, 99), (20, 4, 90)])
def test_processes_of_a_large_share_do_not_lose_it_to_changes(
    host: DriverRoot,
    new_guest: Callable[..., Guest],
    tmp_path: Path,
    kernel_us: int,
    count: int,
    core: int,
) -> None:
    guest = new_guest(share(host.uuids[0], GIB, core))
    found = together(tmp_path, *[(guest, busy(4, kernel_us, 0))] * count)
    shares = [one["share"] for one in found]
    assert are_even(shares, kernel_us), shares
    assert sum(shares) > 0.8


def test_process_with_credit_is_not_passed_by_where_gpu_time_is_rare(
    host: DriverRoot, new_guest: Callable[..., Guest], tmp_path: Path
) -> None:
    # A credit of 1 ms takes 100 ms to earn, in which the others pass by one that does not go.
    guest = new_guest(share(host.uuids[0], GIB, 1))
    shares = [one["share"] for one in together(tmp_path, *[(guest, busy(40, 1000, 0))] * 2)]
    assert min(shares) > 0.0045 and sum(shares) < 0.0105, shares


def test_processes_of_a_container_alone_on_its_node_have_equal_parts(node: PolicyNode) -> None:
    guest = node.container(core=str(CORE))
    shares = node.shares_on(node.clock(3), [guest] * 3, 6, kernel_us=1000, ahead=4)
    assert are_even(shares, 1000), shares


@pytest.mark.parametrize(
    "shapes",
    [
        [(100, 0), (20_000, 2)],
        [(1000, 4), (20_000, 2)],
        [(100, 0)] * 4 + [(20_000, 2)],
        [(1000, 4), (100_000, 0)],
    ],
)
def test_processes_of_short_kernels_have_what_one_of_long_kernels_has(
    host: DriverRoot,
    new_guest: Callable[..., Guest],
    tmp_path: Path,
    shapes: list[tuple[int, int]],
) -> None:
    guest = new_guest(share(host.uuids[0], GIB, CORE))
    found = together(tmp_path, *[(guest, busy(6, *shape)) for shape in shapes])
    shares = [one["share"] for one in found]
    # A burst is as long as the longest kernel that waits, at most 50 ms.
    assert min(shares) > (0.25 if (100_000, 0) in shapes else 0.7) * max(shares), shares
    assert sum(shares) < CORE / 100 + 0.01


@pytest.mark.parametrize("what", ["contexts", "threads", "closed"])
def test_process_takes_no_more_than_others_by_its_threads_or_descriptors(
    host: DriverRoot,
    new_guest: Callable[..., Guest],
    tmp_path: Path,
    client: Clients,
    what: str,
) -> None:
    guest = new_guest(share(host.uuids[0], 4 * GIB, CORE))
    one = (guest, [client("competes"), what, "6"])
    found = together(tmp_path, one, *[(guest, busy(6, 1000, 0))] * 3)
    shares = [one["share"] for one in found]
    assert min(shares) > 0.7 * max(shares), shares
    assert sum(shares) < CORE / 100 + 0.005
    assert (found[0]["changes"], found[0]["locked"]) == (0, 0)
    assert found[0]["closed"] or what != "closed"


# The first files of two file systems have the same inode number.
SAME_INODE = """
set -e
for folder in page own; do
  mkdir "$1/$folder"
  mount -t tmpfs none "$1/$folder"
done
cp "$1/usage" "$1/page"
mount --bind "$1/page/usage" "$1/usage"
"""


def test_programs_file_with_the_pages_inode_number_is_not_locked(
    host: DriverRoot, new_guest: Callable[..., Guest], client: Clients
) -> None:
    guest = new_guest(share(host.uuids[0], GIB, CORE))
    guest.enter = then_enter(SAME_INODE)
    program = f"{client('competes')} closed 1"
    both = ["sh", "-c", f"{program} & {program}; wait"]
    found = guest.run(*both, env={"TMPDIR": f"{guest.folder}/own"})
    assert [json.loads(line)["locked"] for line in found.splitlines()] == [0, 0]


def stands_in_line(guest: Guest) -> bool:
    with open(guest.usage, "rb+") as page:
        ask = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, LINE, 0, 0)
        (kind,) = struct.unpack_from("h", fcntl.fcntl(page, 36, ask))  # F_OFD_GETLK
    return bool(kind != fcntl.F_UNLCK)


def stop_in_line(guest: Guest, process: subprocess.Popen[str]) -> bool:
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.05)
    if stands_in_line(guest):
        return True
    process.send_signal(signal.SIGCONT)
    time.sleep(0.003)
    return False


def test_stopped_process_keeps_its_place_in_line_from_no_other(
    host: DriverRoot, new_guest: Callable[..., Guest]
) -> None:
    guest = new_guest(share(host.uuids[0], GIB, CORE))
    with contextlib.ExitStack() as stack:
        stopped = guest.start("sh", "-c", 'exec "$@"', "sh", *busy(60, 1000, 4))
        stack.callback(stopped.kill)
        until(lambda: guest.read_usage().gpus[0].launches > 20)
        first = guest.start(*busy(0.1, 1000, 4))  # from now on they stand in line
        assert first.wait(30) == 0
        until(lambda: stop_in_line(guest, stopped))
        done = guest.start(*busy(2, 1000, 4))
        found = json.loads(done.communicate(timeout=60)[0])
    # It waits 20 ms at its first launch, and passes by from then on.
    assert 0.25 < found["share"] < 0.31
