"""A container gets a GPU instance of its own, which ends with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from support.engines.base import Engine
from support.fake_kubelet import until
from support.mig_node import H100
from support.product import Product, asking
from vcuda_oci.host.host import load
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger import instance_records

MIB = 1 << 20
LOOK = "ls /dev/nvidia-caps; ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info"
HOLD = "vcuda-workload info; exec vcuda-workload hold --bytes 1048576 --seconds 100"


@pytest.fixture
def machine(scratch: str) -> Product:
    """The product with one H100 in MIG mode, without MIG devices."""
    return Product(scratch + "/product", 1, *H100, "--mig", "0=")


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
