"""Which static partition a container under MPS gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.ledger.samples import GIB, record
from vcuda_oci.container.identity import Owner
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import claim
from vcuda_oci.ledger.claim import Claim, NoPlace
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import allocation, fence, mps
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits
from vcuda_oci.placement.rules import Rules

LAYOUT = [25, 50, 25]
GPUS = [Gpu(f"GPU-{at}", at, 0, 16 * GIB, "Soft", "0000:00:00.0") for at in (0, 1)]
HOST = Host("", "", "", GPUS)
RULES = Rules(partitions=LAYOUT)


@pytest.mark.parametrize(
    ("layout", "total", "chunks"),
    [
        ([50, 25, 25], 16, [8, 4, 4]),
        ([30, 70], 16, [5, 11]),
        ([33, 33, 33], 16, [5, 5, 5]),
        ([33, 33, 34], 16, [5, 5, 6]),
        ([100], 54, [54]),
        ([97, 3], 16, [16, 0]),
        ([], 16, []),
    ],
)
def test_chunks_are_as_many_as_the_sum_of_the_percents(
    layout: list[int], total: int, chunks: list[int]
) -> None:
    assert mps.chunks_of(layout, total) == chunks


@pytest.mark.parametrize(
    ("taken", "core", "number"),
    [((), 10, 1), ((), 26, 2), ((), 51, 0), ((1,), 10, 3), ((1, 3), 10, 2), ((1, 2, 3), 1, 0)],
)
def test_narrowest_free_partition_that_is_wide_enough_is_taken(
    taken: tuple[int, ...], core: int, number: int
) -> None:
    held = [record(partition=one, partitions=LAYOUT) for one in taken]
    assert mps.free_partition(held, LAYOUT, core) == number


def claimed(ledger: Ledger, id: str, core: int, rules: Rules = RULES) -> Allocation:
    request = Request.of(core, GIB)
    mine = Claim(Owner(id, id), request, ["/bin/true"], os.getpid(), isolation="mps")
    return claim.claim(ledger, HOST, mine, rules)[0]


def test_claims_go_to_the_gpu_with_a_free_partition(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    found = [claimed(ledger, str(at), core) for at, core in enumerate((50, 20, 40, 20, 20, 20))]
    places = [(one.shares[0].uuid, one.partition) for one in found]
    first, second = "GPU-0", "GPU-1"
    assert places == [(first, 2), (first, 1), (second, 2), (first, 3), (second, 1), (second, 3)]
    with pytest.raises(NoPlace) as refused:
        claimed(ledger, "more", 5)
    assert str(refused.value) == (
        "placement: GPU-0: has no free static partition that is wide enough, "
        "GPU-1: has no free static partition that is wide enough; "
        "ask for less core, or end a container under MPS there"
    )
    with ledger:
        ledger.remove(found[1].id)
    assert claimed(ledger, "more", 5).partition == 1


def test_gpu_has_the_layout_of_its_containers_whatever_the_setting_says(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path))
    claimed(ledger, "first", 50)
    second = claimed(ledger, "second", 20, RULES.replaced(partitions=[100]))
    assert (second.partition, second.partitions) == (1, LAYOUT)
    ledger = Ledger(f"{tmp_path}/other")
    claimed(ledger, "first", 50, Rules())
    second = claimed(ledger, "second", 20)
    assert (second.partition, second.partitions) == (0, [])


@pytest.mark.parametrize("before", [[], [100]])
def test_dead_container_does_not_keep_its_gpus_layout(tmp_path: Path, before: list[int]) -> None:
    ledger = Ledger(str(tmp_path))
    dead = record("dead", isolation="mps", partition=len(before), partitions=before)
    with ledger:
        ledger.write(dead, limits.page_of(dead))
    first = claimed(ledger, "first", 50)
    assert (first.partition, first.partitions) == (2, LAYOUT)
    assert [one.id for one in ledger.read()[0]] == ["first"]


def test_record_keeps_the_partition_and_earlier_records_have_none() -> None:
    held = record(isolation="mps", partition=2, partitions=LAYOUT)
    assert allocation.parse(held.dump()) == held
    assert "partition" not in record().dump()
    wrong = held.replaced(partition=4)
    with pytest.raises(ValueError, match="a field of the wrong kind"):
        allocation.parse(wrong.dump())


def test_container_with_a_partition_sees_and_may_fill_all_of_it() -> None:
    held = record(
        isolation="mps", shares=[GpuShare("GPU-0", GIB, 30)], partition=2, partitions=LAYOUT
    )
    page = limits.page_of(held)
    at = next(at for name, at, _ in layout.offsets() if name == "limits_gpu.mps_percent")
    assert (page[layout.LIMITS_HEAD_SIZE + at], mps.limits_of(held).percent) == (100, 100)
    assert mps.space_of(held) != mps.space_of(held.replaced(partition=1))


def test_line_says_what_keeps_a_container_in_its_partition() -> None:
    _, line = fence.of("mps", 30, None)
    for known, words in (
        ((64, True), "compute by 64 multiprocessors of its own, which the MPS server keeps it to;"),
        ((64, False), "compute by 64 multiprocessors of its own, which the shim keeps it to;"),
        ((None, None), "compute by multiprocessors of its own;"),
    ):
        assert words in fence.with_partition(fence.with_namespace(line), *known)
