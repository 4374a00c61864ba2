"""An arbiter that is killed, pages that cannot be written, and pages that lie."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from support.arbiter_node import MS, START, World, elastic, fixed
from support.files import write
from vcuda_oci.pages import layout
from vcuda_plugin.agent.compute.container_pages import LEASE_NS


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    made = World(tmp_path / "state")
    yield made
    made.node.close()


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
def test_an_arbiter_killed_at_any_write_leaves_a_page_that_ends_and_that_the_next_mends(
    tmp_path: Any, moment: str, writes: int
) -> None:
    killed, at = True, 0
    while killed:
        at += 1
        world = World(tmp_path / str(at))
        world.holds("a", elastic(30))
        world.holds("b", fixed(50))
        acts: dict[str, Callable[[], Any]] = {
            "first grant": world.look,
            "another grant": partial(world.look, "a", "b"),
        }
        if moment != "first grant":
            world.look()
            assert world.rates("a") == [100]
        world.now += 50 * MS  # as the child's clock will be
        killed = killed_at(at, acts.get(moment, world.node.close))
        page = world.limits("a")
        if killed:
            # Whatever rate stands there, it is what is reserved, or it ends.
            ends = START < page.rate_until_ns <= world.now + 2 * LEASE_NS
            assert page.gpus[0].rate_ppm == 300_000 or ends
        world.node = world.new_node()
        world.look()
        world.look("a", "b")
        assert world.rates("a") == [50]
        world.node.close()
        assert (world.rates("a"), world.limits("a").rate_until_ns) == ([30], 0)
    assert at > writes


@pytest.mark.parametrize("away_ns", [200 * MS, 5 * LEASE_NS], ids=["soon", "late"])
def test_a_restarted_arbiter_raises_no_rate_beside_busy_containers(
    world: World, away_ns: int
) -> None:
    """Each has what is reserved for it, or what it had: neither more than that nor less."""

    def works(*ids: str) -> None:
        for id in ids:
            world.uses(id, 10 * MS)
        world.look(*ids)

    world.holds("a", elastic(40))
    world.holds("b", elastic(30))
    world.holds("c", fixed(20))
    for _ in range(6):
        works("a", "b", "c")
    had = (world.rates("a"), world.rates("b"))
    assert had == ([45], [34])
    world.node = world.new_node()  # the old one was killed
    world.now += away_ns
    for _ in range(6):
        works("a", "b", "c")
        assert (world.rates("a"), world.rates("b")) == had


def test_a_restarted_arbiter_takes_back_lent_time(
    world: World,
) -> None:
    world.holds("a", elastic(50))
    world.holds("b", elastic(50))
    world.look()
    world.look("a")
    assert world.rates("a") == [100]
    world.node = world.new_node()
    for id in ("a", "b"):
        world.uses(id, 10 * MS)
    for _ in range(3):
        world.look("a", "b")
        # As much as is reserved, so that nothing differs from what the record says.
        assert (world.rates("a"), world.rates("b")) == ([50], [50])


def test_a_page_that_cannot_be_written_harms_no_other(world: World) -> None:
    world.holds("a", elastic(30))
    world.holds("b", elastic(30))
    world.look()
    original = os.pwrite
    broken = os.stat(world.page("a", "limits")).st_ino

    def failing(fd: int, content: bytes, at: int) -> int:
        if os.fstat(fd).st_ino == broken:
            raise OSError(5, "Input/output error")
        return original(fd, content, at)

    os.pwrite = failing  # type: ignore[assignment]
    try:
        world.look("a", "b")
    finally:
        os.pwrite = original
    assert world.rates("b") == [50]
    world.look()
    world.look("a", "b")
    assert (world.rates("a"), world.rates("b")) == ([50], [50])


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
def test_a_spoilt_usage_page_takes_nothing_from_the_others(world: World, spoil: Any) -> None:
    world.holds("hostile", elastic(20))
    world.holds("b", elastic(30))
    world.holds("c", fixed(50))
    world.look()
    spoil(world.page("hostile", "usage"))
    for _ in range(5):
        world.look("b", "c")
        assert world.rates("hostile")[0] >= 20
        assert world.rates("hostile")[0] + world.rates("b")[0] <= 100
        assert (world.rates("b")[0] >= 30, world.rates("c")) == (True, [50])
