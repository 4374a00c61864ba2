"""Claims of containers that take turns on a GPU, and of those with an idle time."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.ledger.claims import Claims
from support.ledger.samples import GIB, host, pod_owner, shares_of
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import resize
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.policies import Terms
from vcuda_oci.model.request import Request
from vcuda_oci.model.suspension import BY_ROTATION, SUSPENDED
from vcuda_oci.pages import layout, page_reader
from vcuda_oci.placement.rules import Rules

ROTATE = {"overcommit": 2.0, "rotates": True}
LARGE = Request.of(40, 12 * GIB)
LARGE_SHARE = [GpuShare("GPU-0", 12 * GIB, 40, rotates=True)]


@pytest.fixture
def claims(tmp_path: Any) -> Claims:
    return Claims(tmp_path)


def page_of(claims: Claims, id: str) -> page_reader.Limits:
    with open(f"{claims.ledger.containers}/{id}/limits", "rb") as page:
        return page_reader.read_limits(page.read())


def runs(claims: Claims, id: str, request: Request = LARGE, **rules: Any) -> Any:
    claims.runtime.set_state(id, "running")
    return claims.claim(id, request, **{**ROTATE, **rules})


def step_of(claims: Claims, id: str) -> Any:
    held = claims.ledger.get(id)
    assert held
    return held.suspension and (held.suspension.step, held.suspension.by)


def test_first_container_begins_on_the_gpu_and_one_without_room_off_it(claims: Claims) -> None:
    assert runs(claims, "a") == runs(claims, "b") == (LARGE_SHARE, True)
    assert (step_of(claims, "a"), step_of(claims, "b")) == (None, (SUSPENDED, BY_ROTATION))
    pages = [page_of(claims, id) for id in ("a", "b")]
    assert [page.suspended for page in pages] == [layout.AWAKE, layout.UNTIL_CALL]
    assert all(page.calls_ask for page in pages)
    # The driver moves none of their memory while they run.
    assert [gpu.managed_memory for page in pages for gpu in page.gpus] == [0, 0]


def test_small_container_begins_beside_a_large_one_that_is_there(claims: Claims) -> None:
    runs(claims, "a")
    runs(claims, "b", Request.of(20, 4 * GIB))
    assert step_of(claims, "b") is None


def test_no_more_is_promised_than_the_overcommit(claims: Claims) -> None:
    runs(claims, "a")
    runs(claims, "b")
    assert claims.refusal("c", LARGE, **ROTATE).startswith(
        "placement: largest free share is 20 % and 8.0 GiB on GPU-0"
    )


def test_container_that_stays_leaves_less_for_those_that_rotate(claims: Claims) -> None:
    claims.runtime.set_state("stays", "running")
    claims.claim("stays", Request.of(20, 6 * GIB))
    assert claims.refusal("a", LARGE, **ROTATE) == (
        "placement: 10.0 GiB of GPU-0 rotate; 12.0 GiB asked; ask for less, or free a share"
    )
    runs(claims, "a", Request.of(40, 10 * GIB))
    assert set(shares_of(claims.ledger)) == {"stays", "a"}


def test_restarted_container_begins_where_its_last_instance_ended(claims: Claims) -> None:
    claims.runtime.set_state("sandbox1", "running")
    runs(claims, "a")
    claims.claim(pod_owner("c1"), LARGE, **ROTATE)
    assert claims.claim(pod_owner("c2"), LARGE, **ROTATE) == (LARGE_SHARE, False)
    assert step_of(claims, "pod-uid1.main") == (SUSPENDED, BY_ROTATION)
    assert page_of(claims, "pod-uid1.main").suspended == layout.UNTIL_CALL


def test_record_of_a_container_that_rotates_is_read_back(claims: Claims) -> None:
    runs(claims, "a")
    assert shares_of(claims.ledger) == {"a": LARGE_SHARE}


def test_policy_rotate_takes_turns_where_others_have_managed_memory(claims: Claims) -> None:
    asks = Request.of(40, 12 * GIB, terms=Terms(policy="rotate"))
    for id in ("a", "b"):
        assert runs(claims, id, asks, rotates=False) == (LARGE_SHARE, True)
    assert (step_of(claims, "a"), step_of(claims, "b")) == (None, (SUSPENDED, BY_ROTATION))
    small = Request.of(10, 5 * GIB)
    assert claims.refusal("c", small, overcommit=2.0) == (
        "placement: 4.0 GiB of GPU-0 can be managed beside containers that rotate; 5.0 GiB asked; "
        "use policy rotate"
    )
    managed, _ = runs(claims, "c", Request.of(10, 4 * GIB), rotates=False)
    assert (managed[0].managed, managed[0].rotates) == (True, False)
    for id, grown, left in (("c", "5", "4.0 GiB of GPU-0 can be managed"), ("b", "13", "12.0 GiB")):
        held = claims.ledger.get(id)
        assert held
        with pytest.raises(VcudaError, match=left):
            resize.wanted(
                claims.ledger, host(16), held, 0, {"memory": grown + "GiB"}, Rules(overcommit=2)
            )
    # Without overcommit it is a fixed share, and a named slice cannot leave the GPU for one user.
    alone = Request.of(10, GIB, terms=Terms(policy="rotate"))
    assert claims.claim("d", alone, host(16, 16)) == ([GpuShare("GPU-1", GIB, 10)], True)
    wanted = Claim(Owner("cdi@x", ""), asks, [], os.getpid())
    with pytest.raises(VcudaError, match="several containers may share it"):
        claim(claims.ledger, host(16), wanted, Rules())


@pytest.mark.parametrize(
    ("id", "named", "setting", "seconds"),
    [
        ("a", None, 0, 0),
        ("a", None, 600, 600),
        ("a", 0, 600, 0),
        ("a", 60, 600, 60),
        ("dra@a", None, 600, 0),  # each of its containers writes its page
        ("dra@a", 60, 600, 60),
    ],
)
def test_containers_own_idle_time_goes_before_the_setting(
    claims: Claims, id: str, named: int | None, setting: int, seconds: int
) -> None:
    wanted = Request.of(30, GIB, terms=Terms(idle_suspend=named))
    claims.claim(id, wanted, idle_suspend=setting)
    held = claims.ledger.get(id)
    assert held
    assert held.idle_suspend == seconds
    assert page_of(claims, id).calls_ask == bool(seconds)
