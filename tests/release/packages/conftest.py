"""Fixtures: a machine for each test; the next session removes those of a killed one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from release.packages.hosts import machine
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import DPKG, RPM, Way
from support.host import own_run


@pytest.fixture(scope="session")
def swept() -> None:
    own_run.sweep()


@pytest.fixture
def plain(swept: None) -> Iterator[Machine]:
    """A machine on which nothing runs, as in a container image that is being built."""
    with machine.machine() as made:
        yield made


@pytest.fixture
def booted(swept: None) -> Iterator[Machine]:
    """A machine that systemd runs on."""
    with machine.machine(boots=True) as made:
        yield made


@pytest.fixture(params=[DPKG, RPM], ids=["dpkg", "rpm"])
def way(request: pytest.FixtureRequest) -> Way:
    return request.param
