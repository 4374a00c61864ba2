"""A record is written and read back unchanged; an incomplete record is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, record
from vcuda_oci.model import allocation
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import RESUMING, SUSPENDED, SUSPENDING, WAITING, Suspension

SHARES = st.integers(1, 100).flatmap(
    lambda core: st.builds(
        GpuShare,
        st.text(max_size=40),
        st.integers(1, 2**63),
        st.just(core),
        st.sampled_from(["fixed", "elastic", "weighted", "best-effort"]),
        st.integers(core, 100),
        st.integers(1, 10_000),
        st.integers(0, 1000),
        st.booleans(),
    )
)
RECORDS = st.builds(
    record,
    id=st.text(max_size=20),
    shares=st.lists(SHARES, min_size=1, max_size=4),
    container_id=st.text(max_size=20),
    runtime=st.lists(st.text(max_size=20), min_size=1, max_size=4),
    claimant=st.tuples(st.integers(0, 2**31), st.integers(0, 2**63)).map(list),
    created=st.floats(0, 1e11),
    pod=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    suspension=st.none()
    | st.builds(
        Suspension,
        st.sampled_from([SUSPENDING, SUSPENDED, WAITING, RESUMING]),
        st.sampled_from(["order", "idle", "rotation"]),
        st.floats(0, 1e11),
        st.dictionaries(st.text(max_size=40), st.integers(0, 2**64 - 1), max_size=3),
        st.floats(0, 1e11),
    ),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was_written(whole: Any) -> None:
    text = whole.dump()
    assert allocation.parse(text) == whole
    assert text.endswith("}\n")
    assert text.count("\n") == 1


def test_no_field_is_set_after_the_construction() -> None:
    """tests/conftest.py refuses it in every test."""
    code = compile("record.created = 1", "/oci/vcuda_oci/any.py", "exec")
    with pytest.raises(AttributeError, match=r"Allocation\.created is set after __init__"):
        exec(code, {"record": record()})


def test_a_record_reads_by_eye() -> None:
    assert json.loads(record().dump()) == {
        "version": 1,
        "id": "box",
        "shares": [
            {
                "uuid": "GPU-0",
                "memory_bytes": 4 * GIB,
                "core_percent": 30,
                "policy": "fixed",
                "core_ceiling_percent": 30,
                "weight": 30,
                "priority": 0,
                "managed": False,
                "latency": "normal",
                "rotates": False,
            }
        ],
        "request": {
            "core": 30,
            "memory_bytes": 4 * GIB,
            "gpus": [],
            "policy": "fixed",
            "placement": "",
        },
        "container_id": "box",
        "runtime": ["/nowhere/runc", "--root", "/nowhere/root"],
        "claimant": [1, 1],
        "created": 1700000000.5,
        "pod": {},
    }


def test_record_without_a_managed_memory_field_is_valid() -> None:
    assert allocation.parse(changed(shares=share())).shares == [
        GpuShare("GPU-0", 1, 1, managed=False)
    ]


def test_a_record_cut_anywhere_is_refused() -> None:
    text = record().dump().rstrip("\n")
    for end in range(len(text)):
        with pytest.raises(ValueError):
            allocation.parse(text[:end])


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(record().dump()), **fields})


def share(**fields: Any) -> list[dict[str, Any]]:
    return [{"uuid": "GPU-0", "memory_bytes": 1, "core_percent": 1, **fields}]


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "[]",
        '"x"',
        "{}",
        changed(version=2),
        changed(version=None),
        changed(unknown=1),
        changed(id=5),
        changed(container_id=None),
        changed(request=[]),
        changed(pod=[]),
        changed(pod={"sandbox_id": 5}),
        changed(created="now"),
        changed(created=-1),
        changed(created=float("inf")),
        changed(created=float("nan")),
        changed(created=10**400),
        changed(runtime=[]),
        changed(runtime="runc"),
        changed(runtime=[1]),
        changed(claimant=[1]),
        changed(claimant=[1, "2"]),
        changed(shares=None),
        changed(shares=[]),
        changed(shares="GPU"),
        changed(shares=[5]),
        changed(shares=share(uuid=5)),
        changed(shares=share(memory_bytes=0)),
        changed(shares=share(memory_bytes=1.5)),
        changed(shares=share(memory_bytes=True)),
        changed(shares=share(memory_bytes=2**64)),
        changed(shares=share(core_percent=0)),
        changed(shares=share(core_percent=101)),
        changed(shares=share(managed=1)),
        changed(shares=share(extra=1)),
        changed(shares=share(policy="greedy")),
        changed(shares=share(policy=["fixed"])),
        changed(shares=share(core_percent=30, core_ceiling_percent=29)),
        changed(shares=share(core_ceiling_percent=101)),
        changed(shares=share(core_ceiling_percent="1")),
        changed(shares=share(weight=0)),
        changed(shares=share(weight=1.5)),
        changed(shares=share(weight=10_001)),
        changed(shares=share(priority=-1)),
        changed(shares=share(priority=True)),
        changed(shares=share(priority=1001)),
        changed(shares=share(latency="")),
        changed(shares=share(latency=["low"])),
        changed(becoming=5),
        changed(becoming=share(core_percent=0)),
        changed(becoming=share(uuid="GPU-1")),
        changed(becoming=share() * 2),
        "[" * 100_000,
    ],
)
def test_a_record_of_the_wrong_kinds_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        allocation.parse(text)


OFF = {
    "step": "suspended",
    "by": "order",
    "since": 1.5,
    "bytes": {"GPU-0": 7},
    "wanted": 0,
    "needed": {},
}


def test_a_record_of_a_suspended_container_says_since_when_and_what_is_off() -> None:
    off = record(suspension=Suspension("suspended", "order", 1.5, {"GPU-0": 7}))
    assert json.loads(off.dump()) == {**json.loads(record().dump()), "suspension": OFF}
    assert "suspension" not in json.loads(record().dump())


@pytest.mark.parametrize("needed", [{"GPU-0": -1}, {"GPU-0": 1.5}, {"GPU-0": 1 << 64}, [7]])
def test_a_record_that_needs_no_possible_memory_is_refused(needed: Any) -> None:
    kept = {**json.loads(record().dump()), "suspension": {**OFF, "needed": needed}}
    with pytest.raises(ValueError):
        allocation.parse(json.dumps(kept))


def test_a_record_of_an_older_version_says_not_what_it_needs() -> None:
    older = {name: value for name, value in OFF.items() if name != "needed"}
    kept = {**json.loads(record().dump()), "suspension": older}
    found = allocation.parse(json.dumps(kept)).suspension
    assert found and found.needed == {}


@pytest.mark.parametrize(
    ("step", "resident"),
    [(SUSPENDING, True), (SUSPENDED, False), (WAITING, False), (RESUMING, True)],
)
def test_shares_are_free_for_others_only_while_a_container_is_off(
    step: str, resident: bool
) -> None:
    held = record(suspension=Suspension(step, "order", 1, {}))
    assert held.resident == (held.shares if resident else [])
    assert record().resident == record().shares


@pytest.mark.parametrize(
    "changes",
    [
        {"step": "asleep"}, {"by": "me"}, {"since": -1}, {"since": True}, {"since": float("nan")},
        {"bytes": []}, {"bytes": {"GPU-0": -1}}, {"bytes": {"GPU-0": 1.5}}, {"wanted": "1"},
        {"more": 1}, None,
    ],
)  # fmt: skip
def test_a_record_with_an_invalid_suspension_is_refused(changes: Any) -> None:
    bad = {**json.loads(record().dump()), "suspension": {**OFF, **changes} if changes else [1]}
    with pytest.raises(ValueError, match=r"suspension|not a whole record"):
        allocation.parse(json.dumps(bad))
