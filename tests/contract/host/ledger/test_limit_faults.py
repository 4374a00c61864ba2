"""A change of a share with kills, a full disk and a concurrent arbiter."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from support.agent.arbiter_node import ArbiterNode, elastic, fixed
from support.ledger.faults import killed_at, without_space
from support.ledger.samples import GIB, host, record
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.container.identity import Owner
from vcuda_oci.ledger import claim, resize
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits
from vcuda_oci.pages.limits_in_place import Turn
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.compute.container_pages import LEASE_NS
from vcuda_plugin.agent.ledger import sweep
from vcuda_plugin.agent.ledger.records import Records

OLD = GpuShare("GPU-0", 6 * GIB, 30, "elastic", 40, 30)
# Grows in one figure and shrinks in the other.
NEW = GpuShare("GPU-0", 2 * GIB, 70)


def becomes(ledger: Ledger, id: str, share: GpuShare) -> None:
    with ledger:
        allocation = ledger.get(id)
        assert allocation
        resize.change(ledger, allocation, [share])


def page_of(arbiter_node: ArbiterNode, id: str) -> tuple[int, ...]:
    (gpu,) = arbiter_node.limits(id).gpus
    return gpu.memory_bytes, gpu.core_percent, gpu.core_ceiling_percent, gpu.policy, gpu.rate_ppm


def said_by(share: GpuShare) -> tuple[int, ...]:
    entry = limits.entry_of(share, 0)
    return (
        entry.memory_bytes,
        entry.core_percent,
        entry.core_ceiling_percent,
        entry.policy,
        entry.rate_ppm,
    )


def test_a_change_killed_anywhere_promises_nothing_twice_and_the_next_completes_it(
    arbiter_node: ArbiterNode, tmp_path: Any
) -> None:
    """The next is a claim that lacks room; or the container's restart."""
    runtime, node = FakeRuntime(tmp_path / "bin"), host(16)
    ends: set[str] = set()
    at, killed = 0, True
    while killed:
        at += 1
        allocation = record("box", shares=[OLD], runtime=runtime.words)
        runtime.set_state("box", "running")
        with arbiter_node.ledger:
            arbiter_node.ledger.write(allocation, limits.page_of(allocation))
        killed = killed_at(at, lambda: becomes(arbiter_node.ledger, "box", NEW))
        left = arbiter_node.ledger.get("box")
        assert left
        (held,) = left.shares
        memory, core, *_ = page_of(arbiter_node, "box")
        assert (held.memory_bytes >= memory, held.core_percent >= core) == (True, True)
        ends.add("under way" if left.becoming else "new" if left.shares == [NEW] else "old")
        # There is never room for this: 70 or 30 percent of the GPU is free.
        asked, me = Request.of(71, GIB), Owner("me", "me")
        with pytest.raises(VcudaError, match="largest free share"):
            wanted = claim.Claim(me, asked, runtime.words, os.getpid())
            claim.claim(arbiter_node.ledger, node, wanted, Rules())
        mended = arbiter_node.ledger.get("box")
        assert mended
        assert (mended.becoming, arbiter_node.limits("box").sequence % 2) == (None, 0)
        assert mended.shares == [OLD] if not left.becoming and left.shares == [OLD] else [NEW]
        assert page_of(arbiter_node, "box") == said_by(mended.shares[0])
    assert (ends, at > 15) == ({"under way", "new", "old"}, True)


def test_a_change_that_is_killed_anywhere_is_ended_by_the_agents_next_sweep(
    arbiter_node: ArbiterNode,
) -> None:
    """The event says so; the container lives, so its share is not released."""
    ends: set[str] = set()
    at, killed = 0, True
    while killed:
        at += 1
        arbiter_node.add_record("box", OLD)
        killed = killed_at(at, lambda: becomes(arbiter_node.ledger, "box", NEW))
        left = arbiter_node.ledger.get("box")
        assert left
        before = page_of(arbiter_node, "box"), left.shares
        assert sweep.sweep(Records(arbiter_node.ledger.state_dir)) == []
        mended = arbiter_node.ledger.get("box")
        assert mended
        if left.becoming:
            assert (mended.shares, mended.becoming) == ([NEW], None)
            assert page_of(arbiter_node, "box") == said_by(NEW)
            with open(f"{arbiter_node.ledger.state_dir}/events.jsonl", encoding="utf-8") as lines:
                assert "; the change had been cut short" in lines.readlines()[-1]
        else:  # not begun, or whole: nothing is written
            assert (page_of(arbiter_node, "box"), mended.shares) == before
        assert arbiter_node.limits("box").sequence % 2 == 0
        ends.add("under way" if left.becoming else "new" if left.shares == [NEW] else "old")
    assert (ends, at > 15) == ({"under way", "new", "old"}, True)


def test_container_restarted_during_a_change_gets_the_new_share(
    arbiter_node: ArbiterNode, tmp_path: Any
) -> None:
    runtime, node, wanted = FakeRuntime(tmp_path / "bin"), host(16), Request.of(30)
    allocation = record("box", runtime=runtime.words, request=wanted.as_json())
    allocation.shares, allocation.becoming = [GpuShare("GPU-0", 6 * GIB, 70)], [NEW]
    with arbiter_node.ledger:
        arbiter_node.ledger.write(allocation, limits.page_of(allocation))
    again, is_new = claim.claim(
        arbiter_node.ledger,
        node,
        claim.Claim(Owner("box", "box"), wanted, runtime.words, os.getpid()),
        Rules(),
    )
    assert (again.shares, again.becoming, is_new) == ([NEW], None, False)
    assert page_of(arbiter_node, "box") == said_by(NEW)
    assert arbiter_node.ledger.get("box") == again


def test_a_change_without_space_keeps_the_old_share_or_the_next_completes_it(
    arbiter_node: ArbiterNode,
) -> None:
    at, came = 0, True
    while came:
        at += 1
        arbiter_node.add_record("box", OLD)
        came, answer = without_space(at, lambda: becomes(arbiter_node.ledger, "box", NEW))
        left = arbiter_node.ledger.get("box")
        assert left
        if isinstance(answer, VcudaError):
            assert "No space left on device; free space" in str(answer)
        else:  # all that found no room was its event
            assert (answer, left.shares) == (None, [NEW])
        with arbiter_node.ledger:
            assert resize.finish(arbiter_node.ledger) == (["box"] if left.becoming else [])
        assert page_of(arbiter_node, "box") in (said_by(OLD), said_by(NEW))
    assert at > 4


@pytest.mark.parametrize("page", [b"", b"\0" * layout.LIMITS_SIZE], ids=["empty", "taken back"])
def test_a_page_that_is_none_is_refused_before_the_record_changes(
    arbiter_node: ArbiterNode, page: bytes
) -> None:
    arbiter_node.add_record("box", OLD)
    with open(arbiter_node.page("box", "limits"), "wb") as file:
        file.write(page)
    with pytest.raises(VcudaError, match=r"limits: limits page has .*; start the container again"):
        becomes(arbiter_node.ledger, "box", NEW)
    left = arbiter_node.ledger.get("box")
    assert left and (left.shares, left.becoming) == ([OLD], None)


def test_the_arbiter_grants_by_the_new_share_from_the_next_poll(
    arbiter_node: ArbiterNode,
) -> None:
    arbiter_node.add_record("a", elastic(30, 60))
    arbiter_node.add_record("b", elastic(30))
    for _ in range(2):
        arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])
    becomes(arbiter_node.ledger, "a", elastic(60, 80))
    # The page has the reserved rate at once, without the earlier grant.
    assert (arbiter_node.rates("a"), arbiter_node.limits("a").rate_until_ns) == ([60], 0)
    for _ in range(3):
        arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([66], [33])
    becomes(arbiter_node.ledger, "a", fixed(10))
    assert arbiter_node.rates("a") == [10]
    for _ in range(3):
        arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([10], [90])
    assert arbiter_node.limits("a").rate_until_ns == 0


def test_arbiter_during_a_poll_writes_no_grant_of_the_old_share(
    arbiter_node: ArbiterNode,
) -> None:
    """It has read the record and not yet written, when the share changes."""
    arbiter_node.add_record("a", elastic(50))
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]
    grant = arbiter_node.node._grant

    def while_it_changes() -> None:
        becomes(arbiter_node.ledger, "a", fixed(10))
        grant()

    arbiter_node.node._grant = while_it_changes  # type: ignore[method-assign]
    arbiter_node.now += LEASE_NS  # it has to renew its grant
    arbiter_node.poll("a")
    assert (arbiter_node.rates("a"), arbiter_node.limits("a").rate_until_ns) == ([10], 0)


def test_the_arbiter_does_not_wait_for_another_writer(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    with Turn(arbiter_node.ledger.state_dir) as mine:
        arbiter_node.poll("a")
        assert (mine, arbiter_node.rates("a")) == (True, [30])
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]


def test_changes_beside_a_busy_arbiter_end_as_they_were_asked(arbiter_node: ArbiterNode) -> None:
    """Both write as fast as they can; the second one sees that the page is another."""
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.add_record("b", elastic(30))
    ended = threading.Event()

    def looks() -> None:
        while not ended.is_set():
            arbiter_node.poll("a", "b")

    thread = threading.Thread(target=looks)
    thread.start()
    try:
        for core in [*range(11, 70), 20]:
            becomes(arbiter_node.ledger, "a", elastic(core, 70))
            (gpu,) = arbiter_node.limits("a").gpus
            assert (gpu.core_percent, gpu.core_ceiling_percent) == (core, 70)
    finally:
        ended.set()
        thread.join()
    for _ in range(3):
        arbiter_node.poll("a", "b")
    # 30 + 20 are reserved; the rest is divided by core.
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([40], [60])
