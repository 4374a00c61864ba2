"""The arbiter on a node grants, follows the ledger, and gives back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.arbiter_node import World, elastic, fixed
from support.files import write
from support.samples import record
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import limits
from vcuda_plugin.agent.compute import grants
from vcuda_plugin.agent.compute.container_pages import LEASE_NS


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    made = World(tmp_path / "state")
    yield made
    made.node.close()


def test_a_container_that_wants_is_granted_what_the_others_leave(world: World) -> None:
    world.holds("a", elastic(30))
    world.holds("b", fixed(50))
    world.look()
    world.look("a")
    assert (world.rates("a"), world.rates("b")) == ([100], [50])
    world.look("a", "b")
    assert (world.rates("a"), world.rates("b")) == ([50], [50])


def test_gpus_are_arbitrated_each_by_itself(world: World) -> None:
    world.holds("a", elastic(30, gpu="GPU-0"), elastic(40, gpu="GPU-1"))
    world.holds("b", fixed(60, gpu="GPU-1"))
    world.look()
    world.waits("a", gpu=1)
    world.look("a", "b")
    assert world.rates("a") == [100, 40]


def test_a_container_that_comes_or_goes_is_followed(world: World) -> None:
    world.holds("a", elastic(30))
    world.look()
    world.look("a")
    assert world.rates("a") == [100]
    world.holds("b", elastic(30))
    world.look("a", "b")
    world.look("a", "b")
    assert (world.rates("a"), world.rates("b")) == ([50], [50])
    with world.ledger:
        world.ledger.remove("b")
    world.look("a")
    assert world.rates("a") == [100]


def test_a_container_that_comes_in_the_same_moment_as_another_is_followed_too(world: World) -> None:
    """A file system's clock has its grain: the folder's time is the same after both."""
    world.holds("a", elastic(30))
    world.look()
    moment = os.stat(world.ledger.allocations).st_mtime_ns
    world.holds("b", elastic(30))
    os.utime(world.ledger.allocations, ns=(moment, moment))
    world.look()
    world.look("a", "b")
    assert (world.rates("a"), world.rates("b")) == ([50], [50])


def test_a_container_is_followed_on_after_one_failure_of_its_page(world: World) -> None:
    world.holds("a", elastic(30))
    usage, aside = world.page("a", "usage"), world.page("a", "aside")
    # Long ago, so that the ledger is known not to have changed since.
    os.utime(world.ledger.allocations, ns=(1, 1))
    os.rename(usage, aside)
    world.look()
    os.rename(aside, usage)
    world.look()
    world.look("a")
    assert world.rates("a") == [100]


def test_a_restarted_container_has_its_new_pages_written(world: World) -> None:
    world.holds("a", elastic(30))
    world.look()
    world.look("a")
    world.holds("a", elastic(30))
    assert world.rates("a") == [30]
    world.look()
    world.look("a")
    assert world.rates("a") == [100]


def test_a_fixed_containers_page_is_never_rewritten_for_neighbours(world: World) -> None:
    world.holds("a", fixed(30))
    world.holds("b", fixed(30, gpu="GPU-1"))
    world.holds("c", elastic(30, gpu="GPU-1"))
    world.look()
    world.look("a", "b", "c")
    assert [world.limits(id).sequence for id in "ab"] == [0, 0]
    assert world.limits("c").sequence > 0


def test_a_grant_is_renewed_before_it_ends_and_not_at_every_look(world: World) -> None:
    world.holds("a", elastic(30))
    world.look()
    before = world.limits("a").sequence
    for _ in range(40):
        world.look()
        assert world.limits("a").rate_until_ns - world.now >= LEASE_NS // 2
    # Two seconds of a grant that stays the same.
    assert world.limits("a").sequence - before <= 2 * 4


def test_a_grant_without_renewal_expires(world: World) -> None:
    world.holds("a", elastic(30))
    world.look()
    world.look("a")
    assert world.rates("a") == [100]
    world.now += LEASE_NS + 1
    assert world.rates("a") == [30]


def test_an_orderly_end_gives_back_what_is_reserved(world: World) -> None:
    world.holds("a", elastic(30), elastic(20, gpu="GPU-1"))
    world.look()
    world.look("a")
    world.node.close()
    page = world.limits("a")
    assert ([gpu.rate_ppm for gpu in page.gpus], page.rate_until_ns) == ([300_000, 200_000], 0)


def test_the_arbiter_grants_until_its_block_ends_and_gives_back(world: World) -> None:
    world.holds("a", elastic(30))
    seen = [world.limits("a").rate_until_ns]
    with grants.Arbiter(world.ledger.state_dir) as arbiter:
        for _ in range(3):
            arbiter.look()
            seen.append(world.limits("a").rate_until_ns)
    assert (seen[0], all(seen[1:])) == (0, True)
    assert world.limits("a").rate_until_ns == 0


def test_a_terminated_arbiter_polls_once_and_no_more(world: World) -> None:
    world.holds("a", elastic(30))
    over = threading.Lock()
    with grants.Arbiter(world.ledger.state_dir) as arbiter:
        arbiter.keep(over)
        assert world.limits("a").rate_until_ns > 0
    assert over.locked()


def test_what_is_reserved_is_given_back_after_an_error_too(world: World) -> None:
    world.holds("a", elastic(30))
    with pytest.raises(RuntimeError), grants.Arbiter(world.ledger.state_dir) as arbiter:
        arbiter.look()
        raise RuntimeError("unforeseen")
    page = world.limits("a")
    assert (page.sequence > 0, page.rate_until_ns, page.gpus[0].rate_ppm) == (True, 0, 300_000)


def test_a_second_arbiter_on_the_node_is_refused_in_one_line(world: World) -> None:
    path = world.ledger.state_dir + "/arbiter.lock"
    with grants.Arbiter(world.ledger.state_dir), pytest.raises(VcudaError) as refused:
        grants.Arbiter(world.ledger.state_dir)
    assert str(refused.value) == (
        f"{path}: another arbiter grants here; find it with 'fuser' and end it"
    )
    with grants.Arbiter(world.ledger.state_dir):
        pass


@pytest.mark.parametrize(
    "page",
    [
        b"not a page",
        limits.page_of(record(shares=[elastic(10, gpu="GPU-other")])),
    ],
    ids=["no page", "another's"],
)
def test_a_broken_record_or_page_is_left_alone(world: World, page: bytes) -> None:
    world.holds("a", elastic(30))
    world.holds("odd", elastic(10))
    write(world.page("odd", "limits"), page)
    write(world.ledger.allocations + "/broken.json", "{")
    world.look()
    world.look("a")
    assert world.rates("a") == [100]
    with open(world.page("odd", "limits"), "rb") as limits:
        assert limits.read() == page


def test_no_descriptor_is_left_behind(world: World) -> None:
    before = len(os.listdir("/proc/self/fd"))
    world.holds("c", fixed(10))  # of interest only beside one that is not fixed
    for round in range(5):
        world.holds("a", elastic(30))
        world.holds("b", elastic(10 + round))
        with open(world.page("b", "limits"), "wb"):
            pass
        world.look()
        with world.ledger:
            world.ledger.remove("a")
            world.ledger.remove("b")
        world.look()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_claim_at_the_same_time_is_not_held_up(world: World) -> None:
    """The arbiter takes no lock of the ledger's."""
    world.holds("a", elastic(30))
    done = threading.Event()
    with world.ledger:
        thread = threading.Thread(target=lambda: (world.look(), world.look("a"), done.set()))
        thread.start()
        assert done.wait(10)
        thread.join()
    assert world.rates("a") == [100]
