"""dpkg and rpm, killed at any step: the same command again finishes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from release.docs.commands import of_page
from release.packages import built
from release.packages.hosts import machine, node
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import DPKG, PARTS, RPM, Way
from support import compiled
from support.host.private_host import Result
from support.waiting import until

COUNTED = "/counted"
WRAPPER = "/usr/bin/vcuda-container-runtime"
PODMAN = "/etc/containers/containers.conf.d/99-vcuda.conf"
KILLS = 7
# What the page says of what rpm leaves.
(SWEEP,) = (each.text for each in of_page("docs/install.md") if "-delete" in each.text)


@pytest.fixture(scope="module", params=[DPKG, RPM], ids=["dpkg", "rpm"])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param


@pytest.fixture
def library(tmp_path: Path, way: Way) -> str:
    words = (f'-DPROGRAM="{way.program}"', f'-DCOUNTED="{COUNTED}"')
    return compiled.library(str(tmp_path), "killed_at", *words)


@pytest.fixture(scope="module")
def tree(swept: None, way: Way) -> Iterator[str]:
    """With the packages of this version; machines write into layers of their own."""

    def install(made: Machine) -> None:
        way.prepare(made)
        assert way.install(made, built.folder()).rc == 0

    with machine.tree_of(install) as made:
        yield made


@contextlib.contextmanager
def host(tree: str, library: str) -> Iterator[Machine]:
    with machine.machine(tree=tree) as made:
        node.bring(made, [library])
        node.make_gpus(made)
        yield made


def killed(made: Machine, line: str, at: int) -> Result:
    words = f"export KILLED_AT={at} LD_PRELOAD=/mnt/shared/killed_at.so; {line}"
    ended = made.run("sh", "-c", words)
    # rpm names what it unpacks by the second, and refuses a name that is there.
    second = int(time.time())
    until(lambda: int(time.time()) > second, "the next second")
    return ended


def moments(made: Machine, line: str) -> list[int]:
    """Its calls at which it is to be killed: some from all of the way, which it goes once."""
    whole = killed(made, line, 0)
    assert whole.rc == 0, whole.stderr
    calls = int(made.read(COUNTED))
    assert calls > 100
    return [calls * each // (KILLS + 1) for each in range(1, KILLS + 1)]


@pytest.mark.timeout(300)
def test_an_upgrade_that_is_killed_is_finished_by_the_same_command(
    tree: str, way: Way, library: str
) -> None:
    later = built.next_version()
    with host(tree, library) as first:
        ways = moments(first, way.adding(first, later))
    for at in ways:
        with host(tree, library) as made:
            container = node.Container(made)
            container.start()
            assert killed(made, way.adding(made, later), at).rc != 0
            assert container.allocates() == node.STOPPED_AT_1_GIB
            again = way.install(made, later)
            assert again.rc == 0, again.stderr
            assert way.installed(made) == sorted(f"{name} {built.NEXT}-1" for name in PARTS)
            assert made.check("vcuda", "--version") == f"vcuda {built.NEXT}\n"
            assert made.read("/etc/vcuda/config.toml") == node.SETTINGS
            assert node.allocates(made) == node.STOPPED_AT_1_GIB
            assert (container.status(), container.allocates()) == ("running", node.STOPPED_AT_1_GIB)
            made.check("sh", "-c", SWEEP)
            assert made.check("find", "/etc", "/usr", "-xdev", "-name", "*;*") == ""


@pytest.mark.timeout(300)
def test_a_removal_that_is_killed_is_finished_by_the_same_command(
    tree: str, way: Way, library: str
) -> None:
    with host(tree, library) as first:
        ways = moments(first, way.remove)
    for at in ways:
        with host(tree, library) as made:
            made.check("vcuda", "configure", "podman")
            container = node.Container(made)
            container.start()
            before, again = killed(made, way.remove, at), way.uninstall(made)
            assert (before.rc != 0, again.rc) == (True, 0), again.stderr
            assert way.installed(made) == []
            assert not made.exists(PODMAN)
            left = made.check("find", "/usr", "-xdev", "-name", "*vcuda*").split()
            assert left == [WRAPPER]
            assert f"{WRAPPER}: stays, since" in before.stderr + again.stderr
            assert container.allocates(WRAPPER) == node.STOPPED_AT_1_GIB
            container.call("delete", "--force")


def test_a_runtime_kept_aside_by_a_killed_removal_still_serves_its_containers(
    tree: str, way: Way, library: str
) -> None:
    """Between its file and the script that puts it back."""
    with host(tree, library) as made:
        container = node.Container(made)
        container.start()
        made.check("mv", WRAPPER, "/etc/vcuda/.left-behind")
        removed = way.uninstall(made)
        assert (removed.rc, f"{WRAPPER}: goes" in removed.stderr) == (0, False), removed.stderr
        assert container.allocates(WRAPPER) == node.STOPPED_AT_1_GIB
