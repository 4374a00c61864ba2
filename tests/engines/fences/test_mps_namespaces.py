"""Containers under MPS from driver 615 on: each in a namespace that holds its limits."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.base import Engine
from support.engines.mps_containers import end, shown, vcuda
from support.product import MIB, Product, RunOptions, asking
from support.softgpu.mps_processes import daemons, kill_daemons
from support.waiting import until
from vcuda_oci.fences import mps_control, mps_folder
from vcuda_oci.model import names

BUSY = "vcuda-workload busy --kernel-us=1000 --async=4 --seconds=100"
MPS_FOLDER = "/usr/local/vcuda/mps"
# The driver's own library, and variables as wide as they can be.
ROUND = (
    f"ln -s {names.GUEST_CUDA} /tmp/libcuda.so.1; export LD_LIBRARY_PATH=/tmp"
    f" CUDA_MPS_PIPE_DIRECTORY={MPS_FOLDER} CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100"
    " CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=64G"
)
LIMIT = 256 * MIB


@pytest.fixture(scope="module")
def machine(product: Product, session_folder: str) -> Product:
    folder = tempfile.mkdtemp(dir=session_folder)
    return product.with_gpus(folder + "/driver", 1, "--driver-version", "615.10")


@pytest.fixture
def engine(start_engine: Callable[[str], Engine], machine: Product) -> Iterator[Engine]:
    """runc with the product."""
    found = start_engine("runc-v2")
    with machine.on(found):
        try:
            yield found
        finally:
            kill_daemons(machine.state_dir(found))


def mps(engine: Engine, core: int) -> RunOptions:
    return asking(engine, core=core, memory_bytes=LIMIT, isolation="mps")


def begin(engine: Engine, id: str, script: str, core: int) -> None:
    started = engine.start(id, ["sh", "-c", script], **mps(engine, core))
    assert started.rc == 0, started.stderr


def parts(machine: Product, count: int) -> list[float]:
    """Percent of the multiprocessors that the kernels of each process fill, least first."""
    until(lambda: len(machine.processes()) == count)
    until(lambda: all(one["kernels_finished"] > 50 for one in machine.processes()))
    return sorted(100 * one["whole_ns"] / one["held_ns"] for one in machine.processes())


def spaces(machine: Product, engine: Engine) -> list[str]:
    """Namespaces of containers, as the daemon itself lists them."""
    (folder,) = mps_folder.folders(machine.state_dir(engine))
    tree = mps_folder.wanted(folder)
    assert tree is not None
    return sorted(mps_control.spaces(folder, tree))


@pytest.mark.timed
def test_unequal_containers_have_their_parts_and_a_namespace_each(
    served: Engine, machine: Product
) -> None:
    for id, core in (("one", 30), ("two", 70)):
        begin(served, id, f"exec {BUSY}", core)
    assert parts(machine, 2) == pytest.approx([30, 70], abs=3)
    assert len(set(spaces(machine, served))) == 2
    found = shown(machine, served)
    assert {one["mps"]["version"] for one in found} == {3}
    assert "the MPS server's limit of each process" in found[0]["isolation_holds"]
    end(served, "one")
    until(lambda: len(spaces(machine, served)) == 1)
    end(served, "two")
    until(lambda: daemons(machine.state_dir(served)) == [])


def test_program_round_the_shim_with_wide_variables_has_its_part_alone(
    served: Engine, machine: Product
) -> None:
    begin(served, "one", f"{ROUND}; exec {BUSY}", 30)
    assert parts(machine, 1) == pytest.approx([30], abs=3)
    filled = served.exec("one", ["sh", "-c", f"{ROUND}; exec vcuda-workload alloc --chunk {MIB}"])
    # The driver's limit counts contexts: 512 MiB for them.
    assert json.loads(filled.stdout)["allocated_bytes"] <= LIMIT + 512 * MIB
    end(served, "one")


def test_next_keeper_removes_the_namespace_that_a_killed_one_left(
    engine: Engine, machine: Product
) -> None:
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    for id in ("one", "two"):
        begin(engine, id, "exec sleep 100", 30)
    server.kill()
    inside = engine.exec("one", ["vcuda-workload", "info"])
    assert inside.rc == 0, inside.stderr  # the container goes on
    engine.kill("one")
    engine.wait("one")
    vcuda(machine, engine, "release", "--all-dead")
    assert len(spaces(machine, engine)) == 2
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    until(lambda: len(spaces(machine, engine)) == 1)  # of the one that goes on
    server.kill()
    engine.kill("two")
    engine.wait("two")
    vcuda(machine, engine, "release", "--all-dead")
    assert daemons(machine.state_dir(engine)) == []
    for id in ("one", "two"):
        engine.delete(id)


def test_replaced_daemon_has_a_namespace_for_each_container_and_faults_are_shown(
    served: Engine, machine: Product
) -> None:
    begin(served, "one", "exec sleep 100", 30)
    before = kill_daemons(machine.state_dir(served))
    until(lambda: len(set(daemons(machine.state_dir(served))) - set(before)) == 2)
    # It does not see the fault, so the server does not recover meanwhile.
    begin(served, "two", "exec vcuda-workload hold --bytes 1048576 --seconds 100", 70)
    assert len(spaces(machine, served)) == 2
    until(lambda: [one["mps"]["clients"] for one in shown(machine, served)] == [1, 1])
    machine.order("fail", "--mps-fault", "0")
    until(lambda: "mps, fault" in vcuda(machine, served, "ps", "--wide"))
    end(served, "one", "two")
