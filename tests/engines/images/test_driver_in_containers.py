"""The driver files in a container, as its processes find them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from support.engines.base import Engine, Result, Wanted
from support.engines.low_level import LowLevel
from support.product import Product, RunOptions, asking

PARTS = (
    "cd /usr/bin; ls nvidia-smi; cd /usr/lib/x86_64-linux-gnu; ls libcuda.so.1 libnvidia-ml.so.1"
)


@pytest.fixture(params=["runc-v2", "crun-v2", "docker"])
def sharing(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Engine]:
    engine = start_engine(request.param)
    with product.on(engine):
        yield engine
    assert product.allocations(engine) == []


def share(engine: Engine, **env: str) -> RunOptions:
    asked = asking(engine, core=30)
    asked["env"] = {**asked.get("env", {}), **env}
    return asked


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({}, ["nvidia-smi", "libcuda.so.1", "libnvidia-ml.so.1"]),
        (
            {"NVIDIA_DRIVER_CAPABILITIES": "all"},
            ["nvidia-smi", "libcuda.so.1", "libnvidia-ml.so.1"],
        ),
        ({"NVIDIA_DRIVER_CAPABILITIES": "compute"}, ["libcuda.so.1"]),
        ({"NVIDIA_DRIVER_CAPABILITIES": "utility"}, ["nvidia-smi", "libnvidia-ml.so.1"]),
    ],
)
def test_a_container_finds_the_parts_it_asked_for(
    sharing: Engine, container: str, asked: dict[str, str], parts: list[str]
) -> None:
    result = sharing.run(container, ["sh", "-c", PARTS], **share(sharing, **asked))
    assert result.stdout.splitlines() == parts


def test_a_program_runs_with_its_part_of_the_driver_alone(sharing: Engine, container: str) -> None:
    asked = share(sharing, NVIDIA_DRIVER_CAPABILITIES="compute")
    result = sharing.run(container, ["vcuda-workload", "info"], **asked)
    assert (result.rc, len(json.loads(result.stdout)["devices"])) == (0, 1)
    asked = share(sharing, NVIDIA_DRIVER_CAPABILITIES="utility")
    result = sharing.run(container, ["nvidia-smi", "-L"], **asked)
    assert (result.rc, result.stdout.count("GPU-")) == (0, 1)


def test_an_image_that_demands_a_newer_driver_is_refused_in_one_line(
    sharing: Engine, container: str
) -> None:
    demand = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4,cuda<13 brand=tesla,driver>=999"}
    result = sharing.run(container, ["echo", "hello"], **share(sharing, **demand))
    sharing.delete(container)
    assert result.rc != 0
    assert result.stdout == ""
    line = "'cuda>=12.4,cuda<13 brand=tesla,driver>=999' does not hold: GPU-"
    assert f"env NVIDIA_REQUIRE_CUDA: {line}" in result.stderr
    # The software GPU's own figures hold.
    demand = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4,driver>=580,arch>=9.0,brand=unknown"}
    result = sharing.run(container, ["echo", "hello"], **share(sharing, **demand))
    assert result == Result(0, "hello\n", "")


@pytest.mark.parametrize("name", ["runc-v1", "crun-v2"])
def test_a_user_without_privileges_opens_the_given_gpu(
    start_engine: Callable[[str], Engine], product: Product, container: str, name: str
) -> None:
    """Whatever the group and mode of the host's nodes: the share was granted to the container."""
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    nodes = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    for node in nodes:
        os.chmod(product.driver_root + node, 0o660)
    try:
        with product.on(engine):
            wanted = Wanted(container, ["open-node", *nodes], **asking(engine, core=30))
            bundle = engine.make_bundle(wanted)
            with open(os.path.join(bundle, "config.json")) as file:
                config = json.load(file)
            config["process"]["user"] = {"uid": 65534, "gid": 65534}
            with open(os.path.join(bundle, "config.json"), "w") as file:
                json.dump(config, file)
            result = engine.call("run", "--bundle", bundle, container)
            shutil.rmtree(bundle)
    finally:
        for node in nodes:
            os.chmod(product.driver_root + node, 0o666)
    opened = ("ENXIO", "ENODEV", "ok")  # past every check of permissions
    answers = [line.rpartition(": ")[2] for line in result.stdout.splitlines()]
    assert len(answers) == 2
    assert all(answer in opened for answer in answers), result.stdout
