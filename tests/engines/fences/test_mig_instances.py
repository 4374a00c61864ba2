"""A container gets a GPU instance of its own, which ends with it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.base import Engine, Wanted
from support.engines.low_level import LowLevel
from support.gpu.mig_node import H100
from support.product import Product, asking
from support.waiting import until
from vcuda_oci.host.host import load
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger import instance_records

MIB = 1 << 20
LOOK = "ls /dev/nvidia-caps; ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info"
HOLD = "vcuda-workload info; exec vcuda-workload hold --bytes 1048576 --seconds 100"


@pytest.fixture
def machine(product: Product, scratch: str) -> Product:
    """The product with one H100 in MIG mode, without MIG devices."""
    return product.with_gpus(scratch + "/driver", 1, *H100, "--mig", "0=")


def instances(machine: Product, engine: Engine) -> list[tuple[str, int]]:
    """UUID and place of each GPU instance."""
    facts = load(machine.driver_root, machine.state_dir(engine) + "/host.json")
    with Mig(facts.library) as driver:
        found = driver.instances(facts.gpus[0].uuid)
    return [(one.uuid, one.start) for one in found]


@pytest.mark.parametrize("kind", ["runc-v2", "crun-v2", "docker"])
def test_each_container_sees_its_own_instance_until_it_ends(
    kind: str, start_engine: Callable[[str], Engine], machine: Product
) -> None:
    engine = start_engine(kind)
    with machine.on(engine):
        ask = asking(engine, core=10, isolation="mig")
        started = engine.start("first", ["sh", "-c", HOLD], **ask)
        assert started.rc == 0, started.stderr
        try:
            until(lambda: len(instances(machine, engine)) == 1)
            ((held, start),) = instances(machine, engine)
            assert start == 6
            (record,) = machine.allocations(engine)
            assert (record["isolation"], record["shares"][0]["uuid"]) == ("mig", held)
            second = engine.run("second", ["sh", "-c", LOOK], **ask)
            assert second.rc == 0, second.stderr
            *nodes, info = second.stdout.splitlines()
            (device,) = json.loads(info)["devices"]
            assert device["total_bytes"] == 9984 * MIB
            assert device["uuid"].partition("-")[2] != held.partition("-")[2]
            # GPU instance 8: (3 + 9 * 8), and its compute instance.
            assert nodes == ["nvidia-cap75", "nvidia-cap76", "nvidia0"]
            until(lambda: instances(machine, engine) == [(held, 6)])
        finally:
            engine.kill("first")
            engine.wait("first")
            engine.delete("first")
        until(lambda: instances(machine, engine) == [])
        assert instance_records.read(machine.state_dir(engine)) == []


@pytest.mark.parametrize(
    "call", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"]
)
def test_a_wrapper_that_is_killed_while_it_creates_leaves_nothing_after_a_sweep(
    call: str, start_engine: Callable[[str], Engine], machine: Product
) -> None:
    engine = start_engine("runc-v2")
    assert isinstance(engine, LowLevel)
    with machine.on(engine):
        wanted = Wanted("killed", ["true"], **asking(engine, core=10, isolation="mig"))
        bundle = engine.make_bundle(wanted)
        machine.order("fail", "--call", call, "--hang")
        create = engine.command("create", "--bundle", bundle, "killed")
        wrapper = subprocess.Popen(create, stdin=subprocess.DEVNULL)
        until(lambda: len(instance_records.read(machine.state_dir(engine))) == 1)
        time.sleep(0.3)  # into the call
        wrapper.kill()
        wrapper.wait()
        machine.order("heal")
        made = 0 if call.startswith("nvmlDevice") else 1
        assert len(instances(machine, engine)) == made
        program = os.path.join(machine.prefix, "bin/vcuda")
        sweep = [program, "--config", machine.config, "release", "--all-dead"]
        subprocess.run(sweep, check=True, capture_output=True)
        engine.delete("killed")
        assert instances(machine, engine) == []
        assert instance_records.read(machine.state_dir(engine)) == []


def test_the_claim_server_creates_instances_and_destroys_what_is_left_over(
    start_engine: Callable[[str], Engine], machine: Product
) -> None:
    engine = start_engine("runc-v2")
    with machine.on(engine):
        server = ClaimServer(engine.host, machine, machine.state_dir(engine))
        try:
            result = engine.run(
                "served", ["sh", "-c", LOOK], **asking(engine, core=10, isolation="mig")
            )
            assert result.rc == 0, result.stderr
            assert instances(machine, engine) == []
            held = engine.start(
                "held", ["sleep", "100"], **asking(engine, core=10, isolation="mig")
            )
            assert held.rc == 0, held.stderr
            (record,) = machine.allocations(engine)
            assert record["isolation"] == "mig"
            # As after a kill between a release and its destruction.
            os.unlink(f"{machine.state_dir(engine)}/allocations/{record['id']}.json")
            until(lambda: instances(machine, engine) == [])
            assert instance_records.read(machine.state_dir(engine)) == []
            engine.kill("held")
            engine.wait("held")
            engine.delete("held")
        finally:
            server.close()
