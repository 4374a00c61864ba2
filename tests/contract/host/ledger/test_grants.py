"""The arbiter on a node: grants, follows the ledger, resets the grants at its end."""

from __future__ import annotations

import os
import threading

import pytest

from support.agent.arbiter_node import MS, ArbiterNode, elastic, fixed
from support.files import write
from support.ledger.samples import record
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import (
    BY_ROTATION,
    RESUMING,
    SUSPENDED,
    SUSPENDING,
    WAITING,
    Suspension,
)
from vcuda_oci.pages import limits
from vcuda_plugin.agent.compute import grants
from vcuda_plugin.agent.compute.container_pages import LEASE_NS


def test_a_container_that_wants_is_granted_what_the_others_leave(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.add_record("b", fixed(50))
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([100], [50])
    arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])


def test_gpus_are_arbitrated_each_by_itself(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30, gpu="GPU-0"), elastic(40, gpu="GPU-1"))
    arbiter_node.add_record("b", fixed(60, gpu="GPU-1"))
    arbiter_node.poll()
    arbiter_node.waits("a", gpu=1)
    arbiter_node.poll("a", "b")
    assert arbiter_node.rates("a") == [100, 40]


def test_new_and_removed_containers_are_noticed(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]
    arbiter_node.add_record("b", elastic(30))
    arbiter_node.poll("a", "b")
    arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])
    with arbiter_node.ledger:
        arbiter_node.ledger.remove("b")
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]


def test_two_containers_added_within_one_clock_tick_are_both_followed(
    arbiter_node: ArbiterNode,
) -> None:
    """A file system's clock has its grain: the folder's time is the same after both."""
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.poll()
    moment = os.stat(arbiter_node.ledger.allocations).st_mtime_ns
    arbiter_node.add_record("b", elastic(30))
    os.utime(arbiter_node.ledger.allocations, ns=(moment, moment))
    arbiter_node.poll()
    arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])


def test_a_container_is_followed_on_after_one_failure_of_its_page(
    arbiter_node: ArbiterNode,
) -> None:
    arbiter_node.add_record("a", elastic(30))
    usage, aside = arbiter_node.page("a", "usage"), arbiter_node.page("a", "aside")
    # Long ago, so that the ledger is known not to have changed since.
    os.utime(arbiter_node.ledger.allocations, ns=(1, 1))
    os.rename(usage, aside)
    arbiter_node.poll()
    os.rename(aside, usage)
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]


def test_a_restarted_container_has_its_new_pages_written(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.poll()
    arbiter_node.poll("a")
    arbiter_node.add_record("a", elastic(30))
    assert arbiter_node.rates("a") == [30]
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]


def test_the_container_that_takes_over_has_the_whole_gpu_at_once(arbiter_node: ArbiterNode) -> None:
    for id in "ab":
        arbiter_node.add_record(id, elastic(50))
    _step(arbiter_node, "b", SUSPENDED)
    for _ in range(3):
        arbiter_node.uses("a", 50 * MS)
        arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]
    _step(arbiter_node, "b", WAITING)
    _step(arbiter_node, "a", SUSPENDING)
    arbiter_node.poll()
    _step(arbiter_node, "a", SUSPENDED)
    _step(arbiter_node, "b", RESUMING)
    arbiter_node.poll()
    _step(arbiter_node, "a", WAITING)
    _step(arbiter_node, "b", None)
    for _ in range(3):
        arbiter_node.uses("b", 50 * MS)
        arbiter_node.poll("b")
        assert arbiter_node.rates("b") == [100]
    _step(arbiter_node, "a", None)
    arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])


def _step(arbiter_node: ArbiterNode, id: str, step: str | None) -> None:
    arbiter_node.suspend(id, Suspension(step, BY_ROTATION, 1.0, {}) if step else None)


def test_a_fixed_containers_page_is_never_rewritten_for_neighbours(
    arbiter_node: ArbiterNode,
) -> None:
    arbiter_node.add_record("a", fixed(30))
    arbiter_node.add_record("b", fixed(30, gpu="GPU-1"))
    arbiter_node.add_record("c", elastic(30, gpu="GPU-1"))
    arbiter_node.poll()
    arbiter_node.poll("a", "b", "c")
    assert [arbiter_node.limits(id).sequence for id in "ab"] == [0, 0]
    assert arbiter_node.limits("c").sequence > 0


def test_grant_is_renewed_before_it_expires_but_not_at_every_poll(
    arbiter_node: ArbiterNode,
) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.poll()
    before = arbiter_node.limits("a").sequence
    for _ in range(40):
        arbiter_node.poll()
        assert arbiter_node.limits("a").rate_until_ns - arbiter_node.now >= LEASE_NS // 2
    # Two seconds of a grant that stays the same.
    assert arbiter_node.limits("a").sequence - before <= 2 * 4


def test_a_grant_without_renewal_expires(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]
    arbiter_node.now += LEASE_NS + 1
    assert arbiter_node.rates("a") == [30]


def test_an_orderly_end_gives_back_what_is_reserved(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30), elastic(20, gpu="GPU-1"))
    arbiter_node.poll()
    arbiter_node.poll("a")
    arbiter_node.node.close()
    page = arbiter_node.limits("a")
    assert ([gpu.rate_ppm for gpu in page.gpus], page.rate_until_ns) == ([300_000, 200_000], 0)


def test_the_arbiter_grants_until_its_block_ends_then_resets(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    seen = [arbiter_node.limits("a").rate_until_ns]
    with grants.Arbiter(arbiter_node.ledger.state_dir) as arbiter:
        for _ in range(3):
            arbiter.sample()
            seen.append(arbiter_node.limits("a").rate_until_ns)
    assert (seen[0], all(seen[1:])) == (0, True)
    assert arbiter_node.limits("a").rate_until_ns == 0


def test_a_terminated_arbiter_polls_once_and_no_more(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    over = threading.Lock()
    with grants.Arbiter(arbiter_node.ledger.state_dir) as arbiter:
        arbiter.run(over)
        assert arbiter_node.limits("a").rate_until_ns > 0
    assert over.locked()


def test_reservation_is_returned_after_an_error(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    with pytest.raises(RuntimeError), grants.Arbiter(arbiter_node.ledger.state_dir) as arbiter:
        arbiter.sample()
        raise RuntimeError("unforeseen")
    page = arbiter_node.limits("a")
    assert (page.sequence > 0, page.rate_until_ns, page.gpus[0].rate_ppm) == (True, 0, 300_000)


def test_a_second_arbiter_on_the_node_is_refused_in_one_line(arbiter_node: ArbiterNode) -> None:
    path = arbiter_node.ledger.state_dir + "/arbiter.lock"
    with grants.Arbiter(arbiter_node.ledger.state_dir), pytest.raises(VcudaError) as refused:
        grants.Arbiter(arbiter_node.ledger.state_dir)
    assert str(refused.value) == (
        f"{path}: another arbiter grants here; find it with 'fuser' and end it"
    )
    with grants.Arbiter(arbiter_node.ledger.state_dir):
        pass


@pytest.mark.parametrize(
    "page",
    [
        b"not a page",
        limits.page_of(record(shares=[elastic(10, gpu="GPU-other")])),
    ],
    ids=["no page", "another's"],
)
def test_a_broken_record_or_page_is_left_alone(arbiter_node: ArbiterNode, page: bytes) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.add_record("odd", elastic(10))
    write(arbiter_node.page("odd", "limits"), page)
    write(arbiter_node.ledger.allocations + "/broken.json", "{")
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]
    with open(arbiter_node.page("odd", "limits"), "rb") as limits:
        assert limits.read() == page


def test_no_descriptor_is_left_behind(arbiter_node: ArbiterNode) -> None:
    before = len(os.listdir("/proc/self/fd"))
    arbiter_node.add_record("c", fixed(10))  # of interest only beside one that is not fixed
    for round in range(5):
        arbiter_node.add_record("a", elastic(30))
        arbiter_node.add_record("b", elastic(10 + round))
        with open(arbiter_node.page("b", "limits"), "wb"):
            pass
        arbiter_node.poll()
        with arbiter_node.ledger:
            arbiter_node.ledger.remove("a")
            arbiter_node.ledger.remove("b")
        arbiter_node.poll()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_claim_at_the_same_time_is_not_held_up(arbiter_node: ArbiterNode) -> None:
    """The arbiter takes no lock of the ledger's."""
    arbiter_node.add_record("a", elastic(30))
    done = threading.Event()
    with arbiter_node.ledger:
        thread = threading.Thread(
            target=lambda: (arbiter_node.poll(), arbiter_node.poll("a"), done.set())
        )
        thread.start()
        assert done.wait(10)
        thread.join()
    assert arbiter_node.rates("a") == [100]
