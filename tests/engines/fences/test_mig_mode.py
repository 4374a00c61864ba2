"""MIG devices are offered, shared and given whole as GPUs are; their parent GPU is not."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.agent.test_device_plugin import CORE, MEMORY, offered
from engines.hooks.test_cdi import Host as CdiHost
from support.agent.node_agent import AgentNode
from support.engines.base import Engine, Files
from support.engines.low_level import LowLevel
from support.engines.podman import Podman
from support.engines.vcuda_command import Command
from support.ledger.samples import GIB
from support.product import Product
from support.waiting import until
from vcuda_oci.host import host
from vcuda_oci.ledger import events
from vcuda_oci.model.gpu import Gpu

MACHINE = ("--memory", "16GiB", "--topology", "pcie=2", "--mig", "1=1g.4gb,2g.8gb")
LOOK = """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(1)
assert pynvml.nvmlDeviceGetMigMode(device)[0] == 1
found = []
for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
    try:
        mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
    except pynvml.NVMLError_NotFound:
        continue
    assert pynvml.nvmlDeviceIsMigDeviceHandle(mig)
    parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(device)
    slices = pynvml.nvmlDeviceGetAttributes(mig).gpuInstanceSliceCount
    found.append([pynvml.nvmlDeviceGetUUID(mig), slices, pynvml.nvmlDeviceGetGpuInstanceId(mig)])
say(found=found)
"""


def test_each_slice_is_offered_as_a_gpu_and_running_processes_see_a_new_layout(
    new_node: Callable[..., AgentNode],
) -> None:
    node = new_node("--gpus", "3", *MACHINE)
    first, _, third = node.gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()

    def shown() -> dict[str, Any]:
        program = os.path.join(os.path.dirname(node.program), "vcuda")
        command = [program, "--config", node.config, "gpus", "--json"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return {gpu["name"]: gpu for gpu in json.loads(printed)}

    def offers(resource: str) -> dict[str, int]:
        uuids = [id.partition(".")[0] for id in node.kubelet.healthy(resource)]
        return {uuid: uuids.count(uuid) for uuid in uuids}

    with node.agent():
        offered(node, CORE, MEMORY)
        small, large = [uuid for uuid, _, _ in node.gpu.client(LOOK)["found"]]
        assert offers(CORE) == dict.fromkeys((first, small, large, third), 100)
        assert offers(MEMORY) == {first: 64, small: 16, large: 32, third: 64}
        gpus = shown()
        assert list(gpus) == ["0", "1", "1:0", "1:1", "2"]
        assert [gpu["free_memory_bytes"] // GIB for gpu in gpus.values()] == [16, 0, 4, 8, 16]
        assert gpus["1:1"]["mig_parent"] == gpus["1"]["uuid"]
        node.order("mig", "1=3g.8gb")
        ((other, slices, instance),) = node.gpu.client(LOOK)["found"]
        assert (slices, instance, other in (small, large)) == (3, 1, False)
        until(lambda: offers(CORE) == dict.fromkeys((first, other, third), 100))
        assert list(shown()) == ["0", "1", "1:0", "2"]
        node.order("fail", "--event", "1", "--xid", "95")  # of the whole GPU
        until(lambda: offers(CORE) == dict.fromkeys((first, third), 100))
        assert shown()["1:0"]["unhealthy"] == "Xid 95"
        time.sleep(3)  # more polls, without a second report
        printed = [(event["kind"], event.get("gpu")) for event in events.read(node.state_dir)]
        whole = gpus["1"]["uuid"]
        assert sorted(printed[1:]) == sorted(("gpu-unhealthy", uuid) for uuid in (whole, other))


@pytest.fixture
def machine(product: Product, scratch: str) -> Product:
    """The product with two GPUs; the second is in MIG mode."""
    return product.with_gpus(scratch + "/driver", 2, *MACHINE)


@pytest.fixture
def vcuda(
    start_engine: Callable[[str], Engine], files: Files, scratch: str, machine: Product
) -> Iterator[Command]:
    engine = start_engine("runc-v2")
    assert isinstance(engine, LowLevel)
    command = Command(machine, engine, scratch)
    yield command
    command.close()


def test_tenants_of_mig_devices_are_shown_by_the_device_that_they_have(
    vcuda: Command, files: Files
) -> None:
    gpus = {gpu["name"]: gpu for gpu in vcuda.json("gpus")}
    hold = ["vcuda-workload", "hold", "--bytes", str(GIB), "--seconds", "100"]
    running = []
    for container, gpu, core in (
        ("small", "1:0", "50"),
        ("large", "1:1", "100"),
        ("gpu", "0", "7"),
    ):
        words = ["--core", core, "--gpu", gpu, "--rootfs", files.rootfs, "--", *hold]
        running.append(vcuda.start(container, *words))

    def shown() -> dict[str, tuple[Any, ...]]:
        return {
            entry["gpu_name"]: (
                entry["gpu_index"],
                entry["gpu_uuid"],
                entry["core_percent"],
                entry["memory_bytes"] // GIB,
                entry["memory_used_bytes"],
            )
            for entry in vcuda.json("ps")
        }

    expected = {
        "1:0": (1, gpus["1:0"]["uuid"], 50, 2, GIB),
        "1:1": (1, gpus["1:1"]["uuid"], 100, 8, GIB),
        "0": (0, gpus["0"]["uuid"], 7, 1, GIB),
    }
    until(lambda: shown() == expected, what=lambda: str(shown()))
    lines = vcuda("ps").stdout.splitlines()[1:]
    assert sorted(line.split()[1] for line in lines) == ["0", "1:0", "1:1"]
    taken = {gpu["name"]: gpu["free_memory_bytes"] // GIB for gpu in vcuda.json("gpus")}
    assert (taken["1:0"], taken["1:1"]) == (2, 0)
    for process, pid in running:
        vcuda.send("KILL", pid)  # the container ends with it
        process.wait(30)


SEEN = "ls /dev/nvidia-caps; ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info"


def test_nvidias_variable_gives_the_mig_device_that_it_names_whole(
    start_engine: Callable[[str], Engine], machine: Product
) -> None:
    engine = start_engine("runc-v2")
    gpus = by_name(machine)
    with machine.on(engine):
        for named in (gpus["1:0"].uuid, "1:0"):
            result = engine.run(
                "mig-by-env", ["sh", "-c", SEEN], env={"NVIDIA_VISIBLE_DEVICES": named}
            )
            assert result.rc == 0, result.stderr
            assert is_the_small_one(result.stdout, gpus["1:0"])
        assert machine.allocations(engine) == []


def test_cdi_gives_the_mig_device_that_it_names_and_nothing_of_the_others(
    start_engine: Callable[[str], Engine], machine: Product
) -> None:
    podman = start_engine("podman")
    assert isinstance(podman, Podman)
    gpus = by_name(machine)
    with machine.on(podman), podman.using(podman.plain_runtime()):
        there = CdiHost(podman, machine)
        try:
            generated = there.vcuda("cdi", "generate")
            assert generated.rc == 0, generated.stderr
            for named in (gpus["1:0"].uuid, "1:0"):
                result = there.run("sh", "-c", SEEN, device=named)
                assert result.rc == 0, result.stderr
                assert is_the_small_one(result.stdout, gpus["1:0"])
        finally:
            podman.host.run(["rm", "-f", "/var/run/cdi/vcuda.json"])


def by_name(product: Product) -> dict[str, Gpu]:
    facts = host.load(product.driver_root, product.prefix + "/host.json")
    return {gpu.name: gpu for gpu in facts.gpus}


def is_the_small_one(gpus: str, small: Gpu) -> bool:
    """Whether a container saw the nodes and the memory of it, and no others."""
    *nodes, info = gpus.splitlines()
    (device,) = json.loads(info)["devices"]
    return (nodes, device["uuid"].partition("-")[2], device["total_bytes"]) == (
        ["nvidia-cap201", "nvidia-cap202", "nvidia1"],
        small.uuid.partition("-")[2],
        4 * GIB,
    )


def test_a_tenant_of_a_mig_device_has_its_share_and_opens_no_other(
    vcuda: Command, files: Files
) -> None:
    gpus = {gpu["name"]: gpu for gpu in vcuda.json("gpus")}
    # GPU instances 7 and 3 of GPU 1: (3 + 135 + 9 * instance), and the compute instance's.
    nodes = {"1:0": [201, 202], "1:1": [165, 166]}
    script = """
        ls /dev/nvidia-caps; echo; ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info
        vcuda-workload alloc --chunk 512MiB
        for minor in {}; do mknod /dev/other$minor c 509 $minor; done; mknod /dev/whole c 195 0
        open-node /dev/nvidia-caps/* /dev/other* /dev/whole
    """
    for name, other, core, gib in (("1:0", "1:1", "50", 2), ("1:1", "1:0", "100", 8)):
        run = ["--core", core, "--gpu", name, "--rootfs", files.rootfs, "--", "sh", "-c"]
        strange = [str(minor) for minor in nodes[other]]
        result = vcuda.run(*run, script.format(" ".join(strange)))
        assert result.rc == 0, result.stderr
        own = [f"nvidia-cap{minor}" for minor in nodes[name]]
        caps, _, rest = result.stdout.partition("\n\n")
        assert caps.split() == own
        node, info, alloc, *opened = rest.splitlines()
        assert node == "nvidia1"
        (device,) = json.loads(info)["devices"]
        assert device["uuid"].partition("-")[2] == gpus[name]["uuid"].partition("-")[2]
        assert device["total_bytes"] == json.loads(alloc)["exact_bytes"] == gib * GIB
        refused = [line for line in opened if line.endswith("EPERM")]
        assert refused == [f"/dev/other{minor}: EPERM" for minor in strange] + ["/dev/whole: EPERM"]
        assert len(opened) == 5
