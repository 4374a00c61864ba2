"""A container on a GPU in MIG mode gets the nodes and files of its own MIG device only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.ledger.samples import record
from support.softgpu.softgpu_host import SoftGpu
from vcuda_oci.container.container import container_of
from vcuda_oci.edits import cdi_spec, config_json, edits
from vcuda_oci.host import host, procfs
from vcuda_oci.host.host import Host
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import cdi_edits

PATHS = edits.Paths("/lib/libvcuda.so.1", "/pages", ["/hook"], [])
CONTROL = ["nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"]
# Of GPU instances 7 and 3 of the second GPU, and of their compute instances.
SMALL = ["nvidia-caps/nvidia-cap201", "nvidia-caps/nvidia-cap202"]
LARGE = ["nvidia-caps/nvidia-cap165", "nvidia-caps/nvidia-cap166"]


@pytest.fixture
def facts(tmp_path: Path) -> Host:
    gpu = SoftGpu(tmp_path, "--gpus", "2", "--mig", "1=1g.4gb,2g.8gb")
    return host.load(str(gpu.root), str(tmp_path / "host.json"))


def names(devices: list[str]) -> list[str]:
    return sorted(path.partition("/dev/")[2] for path in devices)


def changes(facts: Host, name: str) -> edits.Edits:
    shares = [GpuShare(gpu.uuid, gpu.memory_bytes, 50) for gpu in facts.gpus if gpu.name == name]
    return edits.edits_for(record(shares=shares), facts, PATHS, "/usr/lib64")


def test_a_share_takes_what_belongs_to_the_others_out_of_a_bundle(facts: Host) -> None:
    every = sorted(["nvidia0", "nvidia1", *CONTROL, *SMALL, *LARGE])
    assert names(["/dev/" + name for name in facts.nodes]) == every
    before = config_json.apply({}, changes(facts, "1:0"))
    after = config_json.apply(before, changes(facts, "1:1"))
    for spec, own in ((before, SMALL), (after, LARGE)):
        devices = [device["path"] for device in spec["linux"]["devices"]]
        assert names(devices) == sorted(["nvidia1", *CONTROL, *own])
        assert len(spec["linux"]["resources"]["devices"]) == len(devices)
        (given,) = cdi_edits.gpus_of(container_of(spec), facts)
        assert given.name == ("1:0" if own is SMALL else "1:1")


def test_cdi_names_each_and_the_gpu_and_all_stand_for_them(facts: Host) -> None:
    spec = cdi_spec.spec(facts, PATHS, ["compute"], {})
    found = {
        device["name"]: names([node["path"] for node in device["containerEdits"]["deviceNodes"]])
        for device in spec["devices"]
    }
    uuids = {gpu.name: gpu.uuid for gpu in facts.gpus}
    expected = {
        "0": ["nvidia0"],
        "1": sorted(["nvidia1", *SMALL, *LARGE]),
        "1:0": sorted(["nvidia1", *SMALL]),
        "1:1": sorted(["nvidia1", *LARGE]),
    }
    by_uuid = {uuids[name]: nodes for name, nodes in expected.items()}
    everything = sorted(["nvidia0", "nvidia1", *SMALL, *LARGE])
    assert found == {**expected, **by_uuid, "all": everything}


def test_a_mig_device_without_nodes_is_a_one_line_error(facts: Host, tmp_path: Path) -> None:
    root = facts.root
    os.unlink(f"{root}/dev/{SMALL[1]}")
    facts = host.load(root, str(tmp_path / "host.json"))
    with pytest.raises(VcudaError) as refused:
        changes(facts, "1:0")
    uuid = next(gpu.uuid for gpu in facts.gpus if gpu.name == "1:0")
    folder = f"{root}/proc/driver/nvidia/capabilities/gpu1/mig/gi7"
    assert str(refused.value) == (
        f"{root}/dev/nvidia-caps: allocation box names {uuid}: its capabilities have no nodes; "
        f"run 'nvidia-modprobe -f {folder}/access -f {folder}/ci0/access' and create the container "
        "again"
    )
    assert changes(facts, "1:1").devices


def test_proc_shows_the_capabilities_of_its_own_instance(facts: Host, tmp_path: Path) -> None:
    folder = f"{tmp_path}/shown"
    own = [gpu for gpu in facts.gpus if gpu.name == "1:0"]
    procfs.write(f"{facts.root}/proc/driver/nvidia", folder, own)
    found = [
        os.path.relpath(f"{at}/{one}", folder) for at, _, all in os.walk(folder) for one in all
    ]
    mig = "capabilities/gpu1/mig/gi7"
    places = [f"{mig}/access", f"{mig}/ci0/access", "gpus/0000:02:00.0/information"]
    assert sorted(found) == [*places, "params", "version"]
