"""Claims: a restarted container gets its share again, a new one gets a free share."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import write
from support.ledger.claims import HALF, NODE, Claims
from support.ledger.samples import GIB, host, left_in, pod_owner, record, shares_of
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.model.suspension import (
    BY_ROTATION,
    RESUMING,
    SUSPENDED,
    SUSPENDING,
    WAITING,
    Suspension,
)
from vcuda_oci.pages import layout, page_reader
from vcuda_oci.placement.rules import Rules

HALF_SHARE = [GpuShare("GPU-0", 4 * GIB, 50)]


@pytest.fixture
def claims(tmp_path: Any) -> Claims:
    return Claims(tmp_path)


def test_a_claim_writes_the_whole_record(claims: Claims) -> None:
    owner = pod_owner("c1")
    allocation, is_new = claim(
        claims.ledger, NODE, Claim(owner, HALF, ["/usr/bin/runc"], os.getpid()), Rules()
    )
    stored = claims.ledger.get("pod-uid1.main")
    assert is_new
    assert stored
    assert stored == allocation
    assert {**stored.as_json(), "created": 0} == {
        "id": "pod-uid1.main",
        "shares": [share.fields() for share in HALF_SHARE],
        "request": HALF.as_json(),
        "container_id": "c1",
        "runtime": ["/usr/bin/runc"],
        "claimant": [os.getpid(), liveness.start_time(os.getpid())],
        "created": 0,
        "pod": {
            "uid": "uid1",
            "namespace": "default",
            "name": "web",
            "container": "main",
            "sandbox_id": "sandbox1",
            "placed": "node",
        },
    }


def test_two_halves_share_a_gpu_and_a_third_is_refused(claims: Claims) -> None:
    for id in ("a", "b"):
        claims.runtime.set_state(id, "running")
        assert claims.claim(id) == (HALF_SHARE, True)
    before = left_in(claims.ledger.state_dir)
    assert claims.refusal("c") == (
        "placement: largest free share is 0 % and 8.0 GiB on GPU-0; 50 % and 4.0 GiB asked; "
        "ask for less, or free a share"
    )
    assert left_in(claims.ledger.state_dir) == before


def test_shares_of_dead_containers_are_swept_when_none_fits(claims: Claims) -> None:
    claims.runtime.set_state("a", "running")
    claims.claim("a")
    claims.claim("dead")
    assert claims.claim("c") == (HALF_SHARE, True)
    assert shares_of(claims.ledger) == {"a": HALF_SHARE, "c": HALF_SHARE}


def usage_of(claims: Claims, id: str) -> str:
    return f"{claims.ledger.containers}/{id}/usage"


def test_a_restarted_container_of_a_pod_gets_its_shares_again_with_fresh_pages(
    claims: Claims,
) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim("other")
    claims.claim(pod_owner("c1"))
    usage = usage_of(claims, "pod-uid1.main")
    with open(usage, "r+b") as old:
        old.seek(200)
        old.write(b"what the first instance used")
        claims.runtime.set_state("c1", "stopped")
        assert claims.claim(pod_owner("c2")) == (HALF_SHARE, False)
        old.seek(200)
        # A process that has the old page still open does not see the new one.
        assert old.read(4) == b"what"
    with open(usage, "rb") as fresh:
        assert fresh.read() == layout.empty_usage_page().ljust(layout.USAGE_SIZE, b"\0")
    stored = claims.ledger.get("pod-uid1.main")
    assert stored
    assert stored.container_id == "c2"
    assert shares_of(claims.ledger) == {"other": HALF_SHARE, "pod-uid1.main": HALF_SHARE}


def test_a_restarted_container_gets_the_setting_of_today(claims: Claims) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim(pod_owner("c1"))
    claims.runtime.set_state("c1", "stopped")
    claims.claim(pod_owner("c2"), meter_copies=True)
    with open(f"{claims.ledger.containers}/pod-uid1.main/limits", "rb") as page:
        assert page_reader.read_limits(page.read()).meter_copies


def test_a_restarted_container_gets_its_share_although_the_gpu_is_full(claims: Claims) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.runtime.set_state("other", "running")
    claims.claim(pod_owner("c1"))
    claims.claim("other")
    assert claims.claim(pod_owner("c2")) == (HALF_SHARE, False)


def test_restarted_container_with_another_request_is_placed_again(claims: Claims) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim(pod_owner("c1"))
    assert claims.claim(pod_owner("c2"), Request.of(100)) == (
        [GpuShare("GPU-0", 16 * GIB, 100)],
        True,
    )
    claims.claim(pod_owner("c3"), Request.of(30, GIB))
    assert shares_of(claims.ledger) == {"pod-uid1.main": [GpuShare("GPU-0", GIB, 30)]}


def test_container_on_a_removed_gpu_is_placed_again(claims: Claims) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim(pod_owner("c1"), Request.of(50, GIB, ("1",)), host(16, 16))
    lesser = host(16, 16)
    lesser.gpus[1].uuid = "GPU-new"
    assert claims.claim(pod_owner("c2"), Request.of(50, GIB, ("1",)), lesser) == (
        [GpuShare("GPU-new", GIB, 50)],
        True,
    )


def pages_of(claims: Claims, id: str) -> list[tuple[int, int, int]]:
    """(memory, managed or not, bytes of a context) of each GPU, from the limits page."""
    with open(f"{claims.ledger.containers}/{id}/limits", "rb") as page:
        limits = page_reader.read_limits(page.read())
    return [(gpu.memory_bytes, gpu.managed_memory, gpu.context_bytes) for gpu in limits.gpus]


def test_overcommitted_shares_stay_so_after_the_setting_is_removed(claims: Claims) -> None:
    request, managed = Request.of(30, 12 * GIB), [GpuShare("GPU-0", 12 * GIB, 30, managed=True)]
    for id in ("sandbox1", "other"):
        claims.runtime.set_state(id, "running")
    claims.overcommit, claims.context_bytes = 1.5, 5
    assert claims.claim(pod_owner("c1"), request) == (managed, True)
    assert claims.claim("other", request) == (managed, True)
    assert pages_of(claims, "other") == [(12 * GIB, 1, 5)]
    claims.overcommit, claims.context_bytes = 1.0, 7
    # Restarted it has its share again, with what a context counts now; a new one finds no room.
    assert claims.claim(pod_owner("c2"), request) == (managed, False)
    assert pages_of(claims, "pod-uid1.main") == [(12 * GIB, 1, 7)]
    assert "largest free share is 40 % and 0.0 GiB on GPU-0" in claims.refusal(
        "new", Request.of(10, 1)
    )


def test_a_whole_gpu_is_not_managed_under_overcommit(claims: Claims) -> None:
    claims.overcommit = 2.0
    assert claims.claim("a", Request.of(100)) == ([GpuShare("GPU-0", 16 * GIB, 100)], True)
    assert pages_of(claims, "a") == [(16 * GIB, 0, 0)]


def test_a_pods_other_container_has_a_share_of_its_own(claims: Claims) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim(pod_owner("c1", "main"))
    claims.claim(pod_owner("c2", "side"))
    assert shares_of(claims.ledger) == {"pod-uid1.main": HALF_SHARE, "pod-uid1.side": HALF_SHARE}


def test_a_second_create_of_a_living_container_changes_nothing(claims: Claims) -> None:
    claims.claim("a")
    claims.runtime.set_state("a", "created")
    usage = usage_of(claims, "a")
    before = (claims.ledger.get("a"), os.stat(usage).st_ino)
    assert claims.claim("a") == (HALF_SHARE, False)
    assert (claims.ledger.get("a"), os.stat(usage).st_ino) == before


def lives(claims: Claims, owner: str, container_id: str) -> str:
    return (
        f"{owner}: container {container_id} of '{' '.join(claims.runtime.words)}' lives and holds "
        f"its share; stop it, or run 'vcuda release {owner}' if it is gone"
    )


def test_a_living_container_cannot_ask_for_something_else(claims: Claims) -> None:
    claims.claim("a")
    claims.runtime.set_state("a", "running")
    assert claims.refusal("a", Request.of(30)) == lives(claims, "a", "a")
    assert shares_of(claims.ledger) == {"a": HALF_SHARE}


def test_the_same_id_below_another_root_does_not_take_a_living_containers_share(
    claims: Claims,
) -> None:
    claims.claim("a")
    claims.runtime.set_state("a", "running")
    expected = lives(claims, "a", "a")
    claims.runtime.words = [*claims.runtime.words, "--root", "/other"]
    assert claims.refusal("a") == expected


def test_two_living_instances_of_one_pods_container_do_not_hold_one_share(claims: Claims) -> None:
    claims.claim(pod_owner("c1"))
    claims.runtime.set_state("c1", "running")
    assert claims.refusal(pod_owner("c2")) == lives(claims, "pod-uid1.main", "c1")


def test_a_broken_record_blocks_with_one_line_that_names_the_file(claims: Claims) -> None:
    path = write(claims.ledger.allocations + "/cut.json", record("cut").dump()[:40])
    message = claims.refusal("a")
    assert message.startswith(f"{path}: is not a whole record (")
    assert message.endswith("; run 'vcuda release cut' if its container has ended")
    assert "\n" not in message
    assert left_in(claims.ledger.state_dir) == ["allocations/cut.json"]


def test_more_gpus_than_a_page_can_say_are_refused_with_nothing_recorded(claims: Claims) -> None:
    assert claims.refusal("a", Request.of(1700), host(*[16] * 17)) == (
        "placement: a container can have 16 GPUs, not 17; ask for fewer GPUs"
    )
    assert left_in(claims.ledger.state_dir) == []


def suspended(
    claims: Claims, id: str, step: str = SUSPENDED, moves: dict[str, str] | None = None
) -> None:
    with claims.ledger:
        held = claims.ledger.get(id)
        assert held
        off = Suspension(step, "order", 1, {"GPU-0": GIB}, moves=moves)
        claims.ledger.record(held.replaced(suspension=off))


def test_room_of_a_suspended_container_is_lent_to_one_that_rotates(claims: Claims) -> None:
    for id in ("a", "b"):
        claims.runtime.set_state(id, "running")
        claims.claim(id)
    for step in (SUSPENDING, RESUMING):
        suspended(claims, "a", step)
        assert "0 % and 8.0 GiB on GPU-0" in claims.refusal("c")
    for id, step in (("c", SUSPENDED), ("d", WAITING)):
        suspended(claims, "a", step)
        assert claims.claim(id) == ([HALF_SHARE[0].replaced(rotates=True)], True)
        new = claims.ledger.get(id)
        # What a container waits for is not taken by a later one.
        assert new and bool(new.suspension) == (step == WAITING)
    with open(f"{claims.ledger.containers}/d/limits", "rb") as page:
        assert page_reader.read_limits(page.read()).calls_ask
    # What is lent once is not lent again; what is promised to nothing else stays firm.
    claims.runtime.set_state("d", "running")
    assert "0 % and 8.0 GiB on GPU-0" in claims.refusal("e")
    assert claims.claim("e", node=host(16, 16)) == ([HALF_SHARE[0].replaced(uuid="GPU-1")], True)


@pytest.mark.parametrize("kept", ["a named slice", "a decision", "managed memory", "MPS"])
def test_container_that_cannot_leave_gets_no_room_of_a_suspended_one(
    claims: Claims, kept: str
) -> None:
    claims.runtime.set_state("a", "running")
    claims.claim("a", Request.of(90, 12 * GIB))
    suspended(claims, "a")
    claims.runtime.set_state("b", "running")
    claims.claim("b", Request.of(20, GIB))
    wanted = Claim(
        Owner("c", "c"),
        Request.of(50, 4 * GIB),
        [] if kept == "a named slice" else claims.runtime.words,
        os.getpid(),
        HALF_SHARE if kept == "a decision" else (),
        isolation="mps" if kept == "MPS" else "",
    )
    overcommit = 2 if kept == "managed memory" else 1
    with pytest.raises(VcudaError) as refused:
        claim(claims.ledger, host(16), wanted, Rules(overcommit=overcommit))
    assert "-" not in str(refused.value).replace("GPU-0", "")  # no negative core is free
    assert set(shares_of(claims.ledger)) == {"a", "b"}


def test_container_that_moves_keeps_its_promise_on_the_gpu_that_it_may_return_to(
    claims: Claims,
) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim(pod_owner("c1"))
    suspended(claims, "pod-uid1.main", RESUMING, {"GPU-0": "GPU-1"})
    claims.runtime.set_state("b", "running")
    claims.claim("b")
    assert "0 % and 8.0 GiB on GPU-0" in claims.refusal("c")
    assert claims.claim(pod_owner("c2")) == (HALF_SHARE, False)
    back = claims.ledger.get("pod-uid1.main")
    assert back and back.suspension is None


def test_container_that_ended_off_its_gpu_begins_off_it_while_others_have_the_room(
    claims: Claims,
) -> None:
    claims.runtime.set_state("sandbox1", "running")
    claims.claim(pod_owner("c1"))
    suspended(claims, "pod-uid1.main")
    for id in ("b", "c"):
        claims.runtime.set_state(id, "running")
        claims.claim(id)
    assert claims.claim(pod_owner("c2")) == (HALF_SHARE, False)
    back = claims.ledger.get("pod-uid1.main")
    assert back and back.suspension
    assert (back.suspension.step, back.suspension.by) == (SUSPENDED, BY_ROTATION)
    with open(f"{claims.ledger.containers}/pod-uid1.main/limits", "rb") as file:
        page = page_reader.read_limits(file.read())
    assert (page.suspended, page.calls_ask) == (layout.UNTIL_CALL, True)


def test_a_container_that_ended_suspended_comes_back_where_its_room_is_free(
    claims: Claims,
) -> None:
    claims.claim(pod_owner("c1"))
    for step in (SUSPENDED, RESUMING):
        suspended(claims, "pod-uid1.main", step)
        assert claims.claim(pod_owner("c2")) == (HALF_SHARE, False)
        back = claims.ledger.get("pod-uid1.main")
        assert back
        assert back.suspension is None
