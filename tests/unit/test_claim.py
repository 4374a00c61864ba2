"""A claim: a container that comes back gets what it had, a new one gets what is free."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.fake_runtime import FakeRuntime
from support.files import write
from support.samples import GIB, host, left_in, pod_owner, record, shares_of
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.claim import Claim, Rules, claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, page_reader

NODE = host(16)
HALF = Request.of(50, 4 * GIB)
HALF_SHARE = [GpuShare("GPU-0", 4 * GIB, 50)]


class Desk:
    """A ledger, and claims at it by containers with claimants that have ended since."""

    def __init__(self, folder: Any) -> None:
        self.ledger = Ledger(f"{folder}/state")
        self.runtime = FakeRuntime(f"{folder}/runc")
        self.overcommit, self.context_bytes = 1.0, 0

    def claim(
        self,
        owner: Owner | str,
        request: Request = HALF,
        node: Any = NODE,
        meter_copies: bool = False,
    ) -> Any:
        """As the wrapper does, and then that process has become runc and ended."""
        owner = Owner(owner, owner) if isinstance(owner, str) else owner
        rules = Rules("binpack", self.overcommit, self.context_bytes, meter_copies)
        words, claimant = self.runtime.words, os.getpid()
        allocation, is_new = claim(self.ledger, node, Claim(owner, request, words, claimant), rules)
        with self.ledger:
            allocation.claimant = [os.getpid(), 1]
            self.ledger.record(allocation)
        return allocation.shares, is_new

    def refusal(self, *arguments: Any) -> str:
        with pytest.raises(VcudaError) as refused:
            self.claim(*arguments)
        return str(refused.value)


@pytest.fixture
def desk(tmp_path: Any) -> Desk:
    return Desk(tmp_path)


def test_a_claim_writes_the_whole_record(desk: Desk) -> None:
    owner = pod_owner("c1")
    allocation, is_new = claim(
        desk.ledger, NODE, Claim(owner, HALF, ["/usr/bin/runc"], os.getpid()), Rules()
    )
    stored = desk.ledger.get("pod-uid1.main")
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
        },
    }


def test_two_halves_share_a_gpu_and_a_third_is_refused(desk: Desk) -> None:
    for id in ("a", "b"):
        desk.runtime.knows(id, "running")
        assert desk.claim(id) == (HALF_SHARE, True)
    before = left_in(desk.ledger.state_dir)
    assert desk.refusal("c") == (
        "placement: largest free share is 0 % and 8.0 GiB on GPU-0; 50 % and 4.0 GiB asked; "
        "ask for less, or free a share"
    )
    assert left_in(desk.ledger.state_dir) == before


def test_what_the_dead_left_is_swept_when_nothing_fits(desk: Desk) -> None:
    desk.runtime.knows("a", "running")
    desk.claim("a")
    desk.claim("dead")
    assert desk.claim("c") == (HALF_SHARE, True)
    assert shares_of(desk.ledger) == {"a": HALF_SHARE, "c": HALF_SHARE}


def usage_of(desk: Desk, id: str) -> str:
    return f"{desk.ledger.containers}/{id}/usage"


def test_a_restarted_container_of_a_pod_gets_its_shares_again_with_fresh_pages(desk: Desk) -> None:
    desk.runtime.knows("sandbox1", "running")
    desk.claim("other")
    desk.claim(pod_owner("c1"))
    usage = usage_of(desk, "pod-uid1.main")
    with open(usage, "r+b") as old:
        old.seek(200)
        old.write(b"what the first instance used")
        desk.runtime.knows("c1", "stopped")
        assert desk.claim(pod_owner("c2")) == (HALF_SHARE, False)
        old.seek(200)
        # A process that has the old page still open does not see the new one.
        assert old.read(4) == b"what"
    with open(usage, "rb") as fresh:
        assert fresh.read() == layout.empty_usage_page().ljust(layout.USAGE_SIZE, b"\0")
    stored = desk.ledger.get("pod-uid1.main")
    assert stored
    assert stored.container_id == "c2"
    assert shares_of(desk.ledger) == {"other": HALF_SHARE, "pod-uid1.main": HALF_SHARE}


def test_a_restarted_container_gets_the_setting_of_today(desk: Desk) -> None:
    desk.runtime.knows("sandbox1", "running")
    desk.claim(pod_owner("c1"))
    desk.runtime.knows("c1", "stopped")
    desk.claim(pod_owner("c2"), meter_copies=True)
    with open(f"{desk.ledger.containers}/pod-uid1.main/limits", "rb") as page:
        assert page_reader.read_limits(page.read()).meter_copies


def test_a_restarted_container_gets_its_share_although_the_gpu_is_full(desk: Desk) -> None:
    desk.runtime.knows("sandbox1", "running")
    desk.runtime.knows("other", "running")
    desk.claim(pod_owner("c1"))
    desk.claim("other")
    assert desk.claim(pod_owner("c2")) == (HALF_SHARE, False)


def test_a_container_that_comes_back_with_another_request_is_placed_anew(desk: Desk) -> None:
    desk.runtime.knows("sandbox1", "running")
    desk.claim(pod_owner("c1"))
    assert desk.claim(pod_owner("c2"), Request.of(100)) == (
        [GpuShare("GPU-0", 16 * GIB, 100)],
        True,
    )
    desk.claim(pod_owner("c3"), Request.of(30, GIB))
    assert shares_of(desk.ledger) == {"pod-uid1.main": [GpuShare("GPU-0", GIB, 30)]}


def test_a_container_on_a_gpu_that_left_the_machine_is_placed_anew(desk: Desk) -> None:
    desk.runtime.knows("sandbox1", "running")
    desk.claim(pod_owner("c1"), Request.of(50, GIB, ("1",)), host(16, 16))
    lesser = host(16, 16)
    lesser.gpus[1].uuid = "GPU-new"
    assert desk.claim(pod_owner("c2"), Request.of(50, GIB, ("1",)), lesser) == (
        [GpuShare("GPU-new", GIB, 50)],
        True,
    )


def pages_of(desk: Desk, id: str) -> list[tuple[int, int, int]]:
    """(memory, managed or not, bytes a context) of each GPU, as the shim is told."""
    with open(f"{desk.ledger.containers}/{id}/limits", "rb") as page:
        limits = page_reader.read_limits(page.read())
    return [(gpu.memory_bytes, gpu.managed_memory, gpu.context_bytes) for gpu in limits.gpus]


def test_what_was_promised_under_overcommit_stays_so_when_the_setting_goes(desk: Desk) -> None:
    request, managed = Request.of(30, 12 * GIB), [GpuShare("GPU-0", 12 * GIB, 30, managed=True)]
    for id in ("sandbox1", "other"):
        desk.runtime.knows(id, "running")
    desk.overcommit, desk.context_bytes = 1.5, 5
    assert desk.claim(pod_owner("c1"), request) == (managed, True)
    assert desk.claim("other", request) == (managed, True)
    assert pages_of(desk, "other") == [(12 * GIB, 1, 5)]
    desk.overcommit, desk.context_bytes = 1.0, 7
    # Restarted it has its share again, with what a context counts now; a new one finds no room.
    assert desk.claim(pod_owner("c2"), request) == (managed, False)
    assert pages_of(desk, "pod-uid1.main") == [(12 * GIB, 1, 7)]
    assert "largest free share is 40 % and 0.0 GiB on GPU-0" in desk.refusal(
        "new", Request.of(10, 1)
    )


def test_a_whole_gpu_is_not_managed_under_overcommit(desk: Desk) -> None:
    desk.overcommit = 2.0
    assert desk.claim("a", Request.of(100)) == ([GpuShare("GPU-0", 16 * GIB, 100)], True)
    assert pages_of(desk, "a") == [(16 * GIB, 0, 0)]


def test_a_pods_other_container_has_a_share_of_its_own(desk: Desk) -> None:
    desk.runtime.knows("sandbox1", "running")
    desk.claim(pod_owner("c1", "main"))
    desk.claim(pod_owner("c2", "side"))
    assert shares_of(desk.ledger) == {"pod-uid1.main": HALF_SHARE, "pod-uid1.side": HALF_SHARE}


def test_a_second_create_of_a_living_container_changes_nothing(desk: Desk) -> None:
    desk.claim("a")
    desk.runtime.knows("a", "created")
    usage = usage_of(desk, "a")
    before = (desk.ledger.get("a"), os.stat(usage).st_ino)
    assert desk.claim("a") == (HALF_SHARE, False)
    assert (desk.ledger.get("a"), os.stat(usage).st_ino) == before


def lives(desk: Desk, owner: str, container_id: str) -> str:
    return (
        f"{owner}: container {container_id} of '{' '.join(desk.runtime.words)}' lives and holds "
        f"its share; stop it, or run 'vcuda release {owner}' if it is gone"
    )


def test_a_living_container_cannot_ask_for_something_else(desk: Desk) -> None:
    desk.claim("a")
    desk.runtime.knows("a", "running")
    assert desk.refusal("a", Request.of(30)) == lives(desk, "a", "a")
    assert shares_of(desk.ledger) == {"a": HALF_SHARE}


def test_the_same_id_below_another_root_does_not_take_a_living_containers_share(desk: Desk) -> None:
    desk.claim("a")
    desk.runtime.knows("a", "running")
    expected = lives(desk, "a", "a")
    desk.runtime.words = [*desk.runtime.words, "--root", "/other"]
    assert desk.refusal("a") == expected


def test_two_living_instances_of_one_pods_container_do_not_hold_one_share(desk: Desk) -> None:
    desk.claim(pod_owner("c1"))
    desk.runtime.knows("c1", "running")
    assert desk.refusal(pod_owner("c2")) == lives(desk, "pod-uid1.main", "c1")


def test_a_broken_record_blocks_with_one_line_that_names_the_file(desk: Desk) -> None:
    path = write(desk.ledger.allocations + "/cut.json", record("cut").dump()[:40])
    message = desk.refusal("a")
    assert message.startswith(f"{path}: is not a whole record (")
    assert message.endswith("; run 'vcuda release cut' if its container is gone")
    assert "\n" not in message
    assert left_in(desk.ledger.state_dir) == ["allocations/cut.json"]


def test_more_gpus_than_a_page_can_say_are_refused_with_nothing_recorded(desk: Desk) -> None:
    assert desk.refusal("a", Request.of(1700), host(*[16] * 17)) == (
        "placement: a container can have 16 GPUs, not 17; ask for fewer GPUs"
    )
    assert left_in(desk.ledger.state_dir) == []
