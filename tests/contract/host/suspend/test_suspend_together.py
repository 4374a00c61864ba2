"""Suspends of what many processes share: a named slice, and memory by CUDA IPC."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from support.softgpu.softgpu_host import PRELUDE
from support.suspend.suspended import MIB, Box, Node, answer_of, node
from vcuda_hook.checkpoint.targets import refuse_unfit
from vcuda_hook.suspend import control
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import kernel_tables

__all__ = ["node"]

# One exports memory; each of the others writes its part and reads all of it, as the ranks of a
# collective do.
EXPORTS = """
import ctypes
context = start()
handle = ok(cuda.cuIpcGetMemHandle(ok(cuda.cuMemAlloc(4 << 20))))
say(handle=ctypes.string_at(handle.getPtr(), 64).hex())
sys.stdin.read()
"""
RANK = """
import ctypes
context, number, handle = start(), int(sys.argv[1]), cuda.CUipcMemHandle()
ctypes.memmove(handle.getPtr(), bytes.fromhex(sys.argv[2]), 64)
shared = int(ok(cuda.cuIpcOpenMemHandle(handle, 1)))
say(pid=os.getpid())
for line in sys.stdin:
    if line.strip():
        ok(cuda.cuMemsetD32(shared + 4096 * number, int(line), 1024))
    back = bytearray(4096 * 3)
    ok(cuda.cuMemcpyDtoH(back, shared, len(back)))
    say(parts=list(memoryview(back).cast("I")[::1024]))
"""


def as_slice(node: Node, id: str) -> None:
    mine = node.record(id)
    with node.ledger:
        node.ledger.record(mine.replaced(runtime=[], container_id="", pod={"name": "p"}))


def slice_user(box: Box, slice_id: str, size: int) -> subprocess.Popen[str]:
    """A process of the box that holds GPU memory and has the slice's page mounted and mapped."""
    page = f"{box.node.ledger.containers}/{slice_id}/usage"
    program = [box.node.holder, str(size), page]
    mounts = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0"; exec "$@"', page]
    user = box.start_program([*mounts, *program])
    box.processes.append(user)
    answer_of(user)
    return user


def test_memory_limit_of_one_container_counts_only_its_own_part_of_a_slice(node: Node) -> None:
    large, small = node.box("cdi@train", 1), node.box("small", 1, 8 * MIB)
    as_slice(node, "cdi@train")
    users = slice_user(large, "cdi@train", 256 * MIB), slice_user(small, "cdi@train", 8 * MIB)
    small.limit_memory(160 * MIB)
    done = node.vcuda("suspend", "cdi@train")
    assert (done.returncode, done.stderr) == (0, "")
    assert node.vcuda("resume", "cdi@train").returncode == 0
    folder = small.limit_memory(32 * MIB)
    refused = node.vcuda("suspend", "cdi@train")
    assert (refused.returncode, node.step("cdi@train")) == (1, None)
    assert refused.stderr.startswith(f"vcuda: cdi@train: {folder} has 0.0")
    assert large.works(users[0]) and small.works(users[1])


@pytest.mark.parametrize("first", ["box", "cdi@train"])
@pytest.mark.parametrize("last", ["box", "cdi@train"])
def test_process_of_a_container_and_a_slice_comes_back_in_any_order(
    node: Node, first: str, last: str
) -> None:
    """Its operator has mounted the page of a slice that the container has no share of."""
    slice_box, box = node.box("cdi@train", 1), node.box("box", 1)
    as_slice(node, "cdi@train")
    own, both = slice_user(slice_box, "cdi@train", 8 * MIB), slice_user(box, "cdi@train", 8 * MIB)
    before = node.used()
    second, earlier = ({"box", "cdi@train"} - {one} for one in (first, last))
    for words in (("suspend", first), ("suspend", *second), ("resume", *earlier), ("resume", last)):
        done = node.vcuda(*words)
        assert (done.returncode, done.stderr) == (0, ""), words
    assert (node.used(), node.step("box"), node.step("cdi@train")) == (before, None, None)
    assert box.all_work() and slice_box.works(own) and box.works(both)


def test_claim_is_suspended_by_order_with_all_that_map_its_page(node: Node) -> None:
    node.box("claim@1", 1)
    as_slice(node, "claim@1")
    before = node.used()
    user = slice_user(node.boxes[0], "claim@1", 64 * MIB)
    for id, by in (("claim@1", "idle"), ("claim@1", "rotation"), ("dra@1", "rotation")):
        with pytest.raises(VcudaError, match="which several containers may share"):
            refuse_unfit(node.record("claim@1").replaced(id=id), node.facts, by, node.ledger)
    # A claim's own idle time counts.
    refuse_unfit(node.record("claim@1").replaced(id="dra@1"), node.facts, "idle", node.ledger)
    # Every process has too many mappings now. Those that have not mounted the page do not count.
    what = f"process {user.pid} has too many mappings to tell whether it uses the slice"
    with (
        mock.patch.object(kernel_tables, "_MOST_MAPS_BYTES", 100),
        pytest.raises(VcudaError, match=what),
    ):
        control.suspend(node.ledger, node.facts, "claim@1", Rules())
    assert node.used() > before
    assert node.vcuda("suspend", "claim@1").returncode == 0
    assert (node.used(), node.step("claim@1")) == (before, "suspended")
    assert node.vcuda("resume", "claim@1").returncode == 0
    assert node.boxes[0].works(user)


def test_processes_that_share_memory_leave_and_come_back_from_driver_610_on(tmp_path: Path) -> None:
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "1", "--driver-version", "610.10")
    box = node.box("box", 1, 8 * MIB)
    exporter = box.start_program([sys.executable, "-c", PRELUDE + EXPORTS])
    box.bystanders.append(exporter)
    program, handle = PRELUDE + RANK, answer_of(exporter)["handle"]
    ranks = []
    for number in range(3):
        rank = box.start_program([sys.executable, "-c", program, str(number), handle])
        box.bystanders.append(rank)
        answer_of(rank)
        ranks.append(rank)

    def says(rank: subprocess.Popen[str], line: str) -> list[int]:
        assert rank.stdin
        rank.stdin.write(line + "\n")
        rank.stdin.flush()
        found: list[int] = answer_of(rank)["parts"]
        return found

    try:
        for turn in (10, 20):
            for number, rank in enumerate(ranks):
                says(rank, str(turn + number))
            assert node.vcuda("suspend", "box").returncode == 0
            assert (node.used(), node.step("box")) == (0, "suspended")
            assert node.vcuda("resume", "box").returncode == 0
            whole = [turn, turn + 1, turn + 2]
            assert [says(rank, "") for rank in ranks] == [whole] * 3
        assert box.all_work()
    finally:
        node.end()
