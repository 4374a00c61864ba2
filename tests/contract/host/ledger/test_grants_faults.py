"""A killed arbiter, pages that cannot be written, and pages with false figures."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from support.agent.arbiter_node import MS, START, ArbiterNode, elastic, fixed
from support.files import write
from vcuda_oci.pages import layout
from vcuda_plugin.agent.compute.container_pages import LEASE_NS


def killed_at(at: int, act: Callable[[], Any]) -> bool:
    """Run `act` in a child that is killed at its `at`-th write; False: it came to its end."""
    child = os.fork()
    if child == 0:
        original, left = os.pwrite, [at]

        def dying(*arguments: Any) -> int:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        os.pwrite = dying
        try:
            act()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize(
    ("moment", "writes"), [("first grant", 4), ("another grant", 1), ("end", 4)]
)
def test_an_arbiter_killed_at_any_write_leaves_expiring_grants_that_the_next_repairs(
    tmp_path: Any, moment: str, writes: int
) -> None:
    killed, at = True, 0
    while killed:
        at += 1
        arbiter_node = ArbiterNode(tmp_path / str(at))
        arbiter_node.add_record("a", elastic(30))
        arbiter_node.add_record("b", fixed(50))
        acts: dict[str, Callable[[], Any]] = {
            "first grant": arbiter_node.poll,
            "another grant": partial(arbiter_node.poll, "a", "b"),
        }
        if moment != "first grant":
            arbiter_node.poll()
            assert arbiter_node.rates("a") == [100]
        arbiter_node.now += 50 * MS  # as the child's clock will be
        killed = killed_at(at, acts.get(moment, arbiter_node.node.close))
        page = arbiter_node.limits("a")
        if killed:
            # Any rate on the page is the reserved one, or expires.
            ends = START < page.rate_until_ns <= arbiter_node.now + 2 * LEASE_NS
            assert page.gpus[0].rate_ppm == 300_000 or ends
        arbiter_node.node = arbiter_node.new_node()
        arbiter_node.poll()
        arbiter_node.poll("a", "b")
        assert arbiter_node.rates("a") == [50]
        arbiter_node.node.close()
        assert (arbiter_node.rates("a"), arbiter_node.limits("a").rate_until_ns) == ([30], 0)
    assert at > writes


@pytest.mark.parametrize("away_ns", [200 * MS, 5 * LEASE_NS], ids=["soon", "late"])
def test_a_restarted_arbiter_raises_no_rate_beside_busy_containers(
    arbiter_node: ArbiterNode, away_ns: int
) -> None:
    """Each has the reserved rate or its last one, and no other."""

    def works(*ids: str) -> None:
        for id in ids:
            arbiter_node.uses(id, 10 * MS)
        arbiter_node.poll(*ids)

    arbiter_node.add_record("a", elastic(40))
    arbiter_node.add_record("b", elastic(30))
    arbiter_node.add_record("c", fixed(20))
    for _ in range(6):
        works("a", "b", "c")
    had = (arbiter_node.rates("a"), arbiter_node.rates("b"))
    assert had == ([45], [34])
    arbiter_node.node = arbiter_node.new_node()  # the old one was killed
    arbiter_node.now += away_ns
    for _ in range(6):
        works("a", "b", "c")
        assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == had


def test_a_restarted_arbiter_takes_back_lent_time(
    arbiter_node: ArbiterNode,
) -> None:
    arbiter_node.add_record("a", elastic(50))
    arbiter_node.add_record("b", elastic(50))
    arbiter_node.poll()
    arbiter_node.poll("a")
    assert arbiter_node.rates("a") == [100]
    arbiter_node.node = arbiter_node.new_node()
    for id in ("a", "b"):
        arbiter_node.uses(id, 10 * MS)
    for _ in range(3):
        arbiter_node.poll("a", "b")
        # The reserved rate, so that the page equals the record.
        assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])


def test_a_page_that_cannot_be_written_harms_no_other(arbiter_node: ArbiterNode) -> None:
    arbiter_node.add_record("a", elastic(30))
    arbiter_node.add_record("b", elastic(30))
    arbiter_node.poll()
    original = os.pwrite
    broken = os.stat(arbiter_node.page("a", "limits")).st_ino

    def failing(fd: int, content: bytes, at: int) -> int:
        if os.fstat(fd).st_ino == broken:
            raise OSError(5, "Input/output error")
        return original(fd, content, at)

    os.pwrite = failing  # type: ignore[assignment]
    try:
        arbiter_node.poll("a", "b")
    finally:
        os.pwrite = original
    assert arbiter_node.rates("b") == [50]
    arbiter_node.poll()
    arbiter_node.poll("a", "b")
    assert (arbiter_node.rates("a"), arbiter_node.rates("b")) == ([50], [50])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: os.truncate(path, 0),
        lambda path: os.truncate(path, 1 << 30),
        lambda path: write(path, b"\xff" * layout.USAGE_SIZE),
        lambda path: write(path, os.urandom(layout.USAGE_SIZE)),
        lambda path: os.unlink(path),
        lambda path: (os.unlink(path), os.symlink("/dev/zero", path)),
    ],
    ids=["empty", "a gigabyte", "all ones", "random", "gone", "a link"],
)
def test_a_spoilt_usage_page_takes_nothing_from_the_others(
    arbiter_node: ArbiterNode, spoil: Any
) -> None:
    arbiter_node.add_record("hostile", elastic(20))
    arbiter_node.add_record("b", elastic(30))
    arbiter_node.add_record("c", fixed(50))
    arbiter_node.poll()
    spoil(arbiter_node.page("hostile", "usage"))
    for _ in range(5):
        arbiter_node.poll("b", "c")
        assert arbiter_node.rates("hostile")[0] >= 20
        assert arbiter_node.rates("hostile")[0] + arbiter_node.rates("b")[0] <= 100
        assert (arbiter_node.rates("b")[0] >= 30, arbiter_node.rates("c")) == (True, [50])
