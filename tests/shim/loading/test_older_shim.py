"""Containers from before an upgrade: an older shim with the current host files."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shim import older_shim
from shim.conftest import DriverRoot
from shim.memory.test_limit_live import Limited, asking
from shim.policy_node import limits_of
from support.gpu.guest import GIB, MIB, SHIM, Guest
from vcuda_plugin.agent.bypass import guest_slots

SLICE = """
import json, pynvml
pynvml.nvmlInit()
memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0))
print(json.dumps([memory.total, memory.used]))
"""


@pytest.fixture(scope="module")
def older(built: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    return older_shim.build(str(tmp_path_factory.mktemp("older")))


@pytest.fixture
def node(host: DriverRoot, tmp_path: Path) -> Iterator[Limited]:
    made = Limited(str(tmp_path / "node"), host.path)
    yield made
    made.close()


def started_then(node: Limited, older: str, **words: str) -> Guest:
    guest = node.container(older, **words)
    older_shim.name_drivers(guest)
    return guest


@pytest.fixture
def asked(node: Limited, older: str) -> Iterator[tuple[Guest, Any]]:
    """A container of 1 GiB, and the answer to an allocation of so many MiB by its process."""
    guest = started_then(node, older, core="30", memory="1GiB")
    with asking(guest) as ask:
        yield guest, ask


def test_the_older_shim_is_not_todays_and_lacks_later_fields(older: str) -> None:
    assert Path(older).read_bytes() != Path(SHIM).read_bytes()
    header = Path(older).parent.joinpath("vcuda_abi.h").read_text()
    assert "rate_until_ns" in header
    assert "thread_asking" not in header


def test_its_limit_is_todays_page_which_vcuda_limit_changes_and_reads(
    node: Limited, asked: tuple[Guest, Any], capsys: Any
) -> None:
    guest, allocate = asked
    assert allocate(768) == ["CUDA_SUCCESS", str(256 * MIB), str(GIB)]
    assert allocate(512) == ["CUDA_ERROR_OUT_OF_MEMORY", str(256 * MIB), str(GIB)]
    assert guest.python(SLICE) == [GIB, 768 * MIB]
    assert node.limit("c0", "--memory", "512MiB") == 1
    assert "its processes hold 768 MiB; 512 MiB asked" in capsys.readouterr().err
    assert node.limit("c0", "--memory", "2GiB") == 0
    assert allocate(512) == ["CUDA_SUCCESS", str(768 * MIB), str(2 * GIB)]


def test_todays_watch_knows_its_processes(asked: tuple[Guest, Any]) -> None:
    guest, allocate = asked
    assert allocate(512)[0] == "CUDA_SUCCESS"
    (process,) = guest.read_usage().processes
    assert sum(process.held_bytes) == 512 * MIB
    inside = guest_slots.inside(process.pid)
    assert inside is not None
    assert guest_slots.knows(guest_slots.read(node_folder(guest)), inside)


def node_folder(guest: Guest) -> str:
    """Where the host has the container's pages."""
    return os.path.dirname(os.path.realpath(guest.usage))


def test_todays_arbiter_grants_it_and_its_static_limit_holds_when_that_is_killed(
    node: Limited, older: str
) -> None:
    guests = [started_then(node, older, core="10", policy="elastic")]
    guests.append(node.container(core="30", policy="elastic"))
    reserved = [pytest.approx(part, abs=0.03) for part in (0.1, 0.3)]
    lent = [pytest.approx(part, abs=0.04) for part in (0.25, 0.75)]
    assert node.shares_on(node.clock(2), guests, 10) == reserved
    clock = node.clock(3)
    with node.arbiter(clock) as arbiter:
        assert node.shares_on(clock, guests, 10) == lent
        arbiter.send_signal(signal.SIGKILL)
        arbiter.wait(10)
    assert all(limits_of(guest).rate_until_ns for guest in guests)
    # One second after the arbiter's last poll its grants have expired.
    subprocess.run(node.clock(1).command("sleep", "1.1"), check=True)
    assert node.shares_on(node.clock(2), guests, 10) == reserved
    assert node.granted_shares(guests, 10) == lent
