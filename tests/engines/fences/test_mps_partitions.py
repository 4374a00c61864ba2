"""Containers under MPS with multiprocessors of their own, from driver 590 on."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.base import Engine
from support.engines.mps_containers import end, shown, vcuda
from support.product import MIB, Product, asking
from support.softgpu.mps_processes import daemons, kill_daemons
from support.waiting import until
from vcuda_oci.model import names

BUSY = "vcuda-workload busy --kernel-us=10000 --async=8 --seconds=600"
LAYOUT = "50,25,25"
MULTIPROCESSORS = 132
NAMED = "/usr/local/vcuda/mps/partition"
# The driver's own library, and another container's partition.
ROUND = (
    f"ln -s {names.GUEST_CUDA} /tmp/libcuda.so.1; export LD_LIBRARY_PATH=/tmp"
    " CUDA_MPS_PIPE_DIRECTORY=/usr/local/vcuda/mps CUDA_MPS_SM_PARTITION="
)


# MPS of version 2, and of version 3: from 620 on a namespace keeps its clients in a partition.
V2, V3, BINDS = "590.10", "615.10", "620.10"
SEED = ("--seed", "1")
EACH = pytest.mark.parametrize("driver", [V2, V3, BINDS], indirect=True)


@pytest.fixture(params=[V2, BINDS])
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine(product: Product, scratch: str, driver: str) -> Product:
    return product.with_gpus(scratch + "/driver", 1, *SEED, "--driver-version", driver)


@pytest.fixture
def engine(start_engine: Callable[[str], Engine], machine: Product) -> Iterator[Engine]:
    """runc with the product and the layout."""
    found = start_engine("runc-v2")
    with machine.on(found, mps_partitions=LAYOUT):
        try:
            yield found
        finally:
            kill_daemons(machine.state_dir(found))


def begin(engine: Engine, id: str, core: int, script: str = f"exec {BUSY}") -> None:
    share = asking(engine, core=core, memory_bytes=256 * MIB, isolation="mps")
    started = engine.start(id, ["sh", "-c", script], **share)
    assert started.rc == 0, started.stderr


def refusal(engine: Engine, core: int) -> str:
    share = asking(engine, core=core, memory_bytes=256 * MIB, isolation="mps")
    refused = engine.start(f"refused-{uuid.uuid4()}", ["true"], **share)
    assert refused.rc != 0
    return refused.stdout + refused.stderr


def held(machine: Product, engine: Engine) -> dict[str, int]:
    """By name, the number of the partition that the ledger has."""
    return {one["container_id"]: one["partition"] for one in machine.allocations(engine)}


def widths(machine: Product, count: int) -> list[float]:
    """How many multiprocessors the kernels of each process fill, least first."""
    until(lambda: len(machine.processes()) == count)
    until(lambda: all(one["kernels_finished"] > 5 for one in machine.processes()))
    found = [one["whole_ns"] / one["held_ns"] for one in machine.processes()]
    return sorted(MULTIPROCESSORS * part for part in found)


@EACH
def test_each_container_has_the_narrowest_free_partition_for_itself(
    served: Engine, machine: Product, driver: str
) -> None:
    for id, core in (("small", 10), ("large", 40), ("other", 25)):
        begin(served, id, core)
    assert held(machine, served) == {"small": 2, "large": 1, "other": 3}
    # Of 16 chunks of 8 multiprocessors.
    assert widths(machine, 3) == pytest.approx([32, 32, 64], rel=0.01)
    found = {one["container_id"]: one for one in shown(machine, served)}
    assert found["large"]["mps"]["partition"] == 1
    assert [found[id]["mps"]["multiprocessors"] for id in ("small", "large")] == [32, 64]
    assert found["large"]["mps"]["version"] == (2 if driver == V2 else 3)
    keeper = "MPS server" if driver == BINDS else "shim"
    what = f"compute by 64 multiprocessors of its own, which the {keeper} keeps it to; a fault"
    assert what in found["large"]["isolation_holds"]
    assert "has no free static partition that is wide enough; ask for less core" in refusal(
        served, 10
    )
    end(served, "other")
    begin(served, "next", 20)
    assert held(machine, served) == {"small": 2, "large": 1, "next": 3}
    end(served, "small", "large", "next")
    until(lambda: daemons(machine.state_dir(served)) == [])


@EACH
def test_program_round_the_shim_takes_anothers_partition_before_620_alone(
    served: Engine, machine: Product, driver: str
) -> None:
    begin(served, "large", 50, "exec sleep 600")
    other = served.exec("large", ["cat", NAMED]).stdout
    assert other.startswith("GPU-")
    begin(served, "small", 25, f"{ROUND}{other}; exec {BUSY}")
    assert widths(machine, 1) == pytest.approx([32 if driver == BINDS else 64], rel=0.01)
    end(served, "large", "small")


def test_program_round_the_shim_that_names_no_partition_gets_only_its_namespaces(
    served: Engine, driver: str
) -> None:
    info = "vcuda-workload info >/tmp/new 2>&1; mv /tmp/new /tmp/told"
    begin(served, "small", 25, f"{ROUND}; {info}; exec sleep 600")
    until(lambda: served.exec("small", ["cat", "/tmp/told"]).stdout != "")
    told = served.exec("small", ["cat", "/tmp/told"]).stdout
    assert ("CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" not in told) == (driver == BINDS), told
    end(served, "small")


def test_program_with_other_variables_has_its_containers_partition(
    served: Engine, machine: Product
) -> None:
    others = "CUDA_MPS_SM_PARTITION=GPU-x/x CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1"
    begin(served, "small", 25, f"{others} exec {BUSY}")
    assert widths(machine, 1) == pytest.approx([32], rel=0.01)
    end(served, "small")


def test_partition_of_a_container_that_was_killed_is_free_again(
    engine: Engine, machine: Product
) -> None:
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    begin(engine, "first", 50, "exec sleep 600")
    server.kill()
    engine.kill("first")
    engine.wait("first")  # and no program deletes it
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    begin(engine, "second", 50)
    assert held(machine, engine) == {"second": 1}
    assert widths(machine, 1) == pytest.approx([64], rel=0.01)
    engine.delete("first")
    end(engine, "second")
    until(lambda: daemons(machine.state_dir(engine)) == [])
    server.close()


def test_replaced_daemon_has_the_partitions_before_the_next_container(
    served: Engine, machine: Product
) -> None:
    begin(served, "first", 50, "exec sleep 600")
    before = kill_daemons(machine.state_dir(served))
    until(lambda: len(set(daemons(machine.state_dir(served))) - set(before)) == 2)
    begin(served, "second", 10)
    assert held(machine, served) == {"first": 1, "second": 2}
    assert widths(machine, 1) == pytest.approx([32], rel=0.01)
    end(served, "first", "second")


@pytest.mark.parametrize(("driver", "upgraded"), [("580.95", V2), (V2, BINDS)], indirect=["driver"])
def test_container_after_an_upgrade_has_its_partition_whatever_daemon_was_left(
    engine: Engine, machine: Product, driver: str, upgraded: str
) -> None:
    machine.configure(engine, mps_partitions=LAYOUT if driver == V2 else "")
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    begin(engine, "first", 50, "exec sleep 600")
    server.kill()
    engine.kill("first")
    engine.wait("first")  # its record and its daemon are left
    left = daemons(machine.state_dir(engine))
    assert len(left) == 2
    machine.create(1, *SEED, "--driver-version", upgraded)
    machine.configure(engine, mps_partitions=LAYOUT)
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    begin(engine, "second", 50)
    assert held(machine, engine) == {"second": 1}
    assert widths(machine, 1) == pytest.approx([64], rel=0.01)
    assert driver == V2 or not set(left) & set(daemons(machine.state_dir(engine)))
    engine.delete("first")
    end(engine, "second")
    until(lambda: daemons(machine.state_dir(engine)) == [])
    server.close()


@pytest.mark.parametrize("driver", [V2], indirect=True)
def test_partition_that_root_elsewhere_removed_is_replaced_by_none(
    served: Engine, machine: Product
) -> None:
    begin(served, "victim", 50, "exec sleep 600")
    begin(served, "other", 25, "exec sleep 600")
    gpu, id = served.exec("victim", ["cat", NAMED]).stdout.split("/", 1)
    say = f"CUDA_MPS_PIPE_DIRECTORY={os.path.dirname(NAMED)} nvidia-cuda-mps-control"
    script = f"echo lspart | {say}; echo sm_partition rm {gpu} {id} | {say}; echo lspart | {say}"
    told = served.exec("other", ["sh", "-c", script]).stdout
    assert told.count(id) == 1, told
    refused = served.exec("victim", ["vcuda-workload", "info"])
    assert "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" in refused.stdout + refused.stderr
    end(served, "victim", "other")
    begin(served, "next", 50)
    assert widths(machine, 1) == pytest.approx([64], rel=0.01)
    end(served, "next")


def test_layout_counts_again_once_no_container_is_left(served: Engine, machine: Product) -> None:
    begin(served, "first", 50, "exec sleep 600")
    machine.configure(served, mps_partitions="100")
    begin(served, "second", 25, "exec sleep 600")
    assert held(machine, served) == {"first": 1, "second": 2}
    end(served, "first", "second")
    begin(served, "third", 10, "exec sleep 600")
    assert "no free static partition" in refusal(served, 10)
    end(served, "third")


@pytest.mark.parametrize("driver", ["580.95"], indirect=True)
def test_layout_is_refused_where_the_driver_has_no_such_partitions(
    served: Engine, machine: Product
) -> None:
    what = "isolation mps: mps-partitions needs driver 590 or later; leave mps-partitions empty"
    assert what in refusal(served, 10)
    assert vcuda(machine, served, "ps", "--json").strip() == "[]"


def test_layout_that_the_gpu_cannot_have_is_named(served: Engine, machine: Product) -> None:
    machine.configure(served, mps_partitions="97,3")
    assert "mps-partitions: 3 % are less than one of the GPU's chunks" in refusal(served, 10)
