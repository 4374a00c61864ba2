"""The faults that `make soak` reports."""

from __future__ import annotations

import dataclasses

import pytest

from release.soak import pods, verdict
from release.soak.starts import PLAIN, WITH_SERVER, WITHOUT_SERVER, Soaked
from support.agent.claim_server import Use

MIB = 1 << 20
SERVER = {1: Use(4, 12 * MIB), 2: Use(4, 12 * MIB)}
# The machine is twice as busy at the end; a start costs what it did.
FIRST = {PLAIN: [1.0, 3.0, 1.0], WITH_SERVER: [1.2, 3.6, 1.2], WITHOUT_SERVER: [1.6, 4.8, 1.6]}
LAST = {PLAIN: [2.0, 2.0, 9.0], WITH_SERVER: [2.4, 2.4, 9.9], WITHOUT_SERVER: [3.2, 3.2, 9.0]}
WELL = Soaked(100, [], SERVER, SERVER, FIRST, LAST)


def test_a_busier_machine_is_no_fault() -> None:
    assert verdict.faults(WELL) == []
    assert verdict.slowdown(WELL, WITH_SERVER) == pytest.approx(1.0)


def test_a_start_that_got_slower_than_a_plain_one_beside_it_is_a_fault() -> None:
    slower = {**LAST, WITH_SERVER: [2.9, 2.9, 9.9]}
    many = {way: times * (verdict.LEAST_ROUNDS // 3 + 1) for way, times in slower.items()}
    found = verdict.faults(dataclasses.replace(WELL, last=many))
    assert found == ["with_server: 1.21 times as slow at the end"]
    # Of a few it is noise.
    assert verdict.faults(dataclasses.replace(WELL, last=slower)) == []


@pytest.mark.parametrize(
    "after",
    [
        {1: Use(4, 12 * MIB), 2: Use(4, 13 * MIB)},
        {1: Use(4, 12 * MIB), 2: Use(5, 12 * MIB)},
        {1: Use(4, 12 * MIB), 3: Use(4, 12 * MIB)},
    ],
    ids=["more memory", "a descriptor more", "another worker"],
)
def test_a_changed_entry_point_is_a_fault(after: dict[int, Use]) -> None:
    (fault,) = verdict.faults(dataclasses.replace(WELL, server_after=after))
    assert fault == f"the claim server: {SERVER}, then {after}"


def test_every_leftover_is_named() -> None:
    left = ["+ mount /x", "- process 7 runc"]
    assert verdict.faults(dataclasses.replace(WELL, left=left)) == left


@pytest.mark.parametrize(
    ("counts", "of_few", "of_many"),
    [
        ([73, 73, 73, 73, 73, 73], False, False),
        ([73, 78, 78, 78, 78, 78], False, True),
        ([73, 74, 75, 76, 77, 78], True, True),
        ([78, 73, 74, 75, 76, 77], False, False),
    ],
    ids=["steady", "opened once, late", "one more for each pod", "closed since"],
)
def test_descriptors_that_grow_with_each_pod_are_a_leak(
    counts: list[int], of_few: bool, of_many: bool
) -> None:
    assert pods.grows(counts, is_whole=False) == of_few
    assert pods.grows(counts, is_whole=True) == of_many
