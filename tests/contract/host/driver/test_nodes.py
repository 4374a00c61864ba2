"""Device nodes: those of a container's own GPUs, and those that the settings give to all."""

from __future__ import annotations

import os
import stat
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import PATHS, record
from vcuda_oci.edits import config_json, edits
from vcuda_oci.host import device_nodes, host
from vcuda_oci.host.device_nodes import DeviceNode
from vcuda_oci.model import capabilities
from vcuda_oci.model.allocation import GpuShare

# Beside the control nodes and the GPUs' own. GPU 0 is in MIG instances.
NODES = {
    "nvidia-modeset": (195, 254),
    "nvidia-caps/nvidia-cap1": (508, 1),
    "nvidia-caps/nvidia-cap30": (508, 30),
    "nvidia-caps/nvidia-cap31": (508, 31),
    "dri/card1": (226, 1),
    "dri/renderD128": (226, 128),
    "dri/card2": (226, 2),
    "dri/renderD129": (226, 129),
    "dri/card0": (226, 0),
    "nvidia-fs0": (511, 0),
    "nvidia-fs1": (511, 1),
    "gdrdrv": (512, 0),
    "infiniband/uverbs0": (231, 192),
    "infiniband/rdma_cm": (10, 58),
    "infiniband/umad0": (231, 0),
    "nvidia-nvswitchctl": (509, 255),
    "nvidia-nvswitch0": (509, 0),
    "nvidia-caps-imex-channels/channel0": (507, 0),
    "nvidia-caps-imex-channels/channel7": (507, 7),
}
CONTROL = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
MIG = {"nvidia-caps/nvidia-cap30", "nvidia-caps/nvidia-cap31"}


def node(folder: str, name: str, major: int, minor: int) -> None:
    os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
    os.mknod(f"{folder}/{name}", stat.S_IFCHR | 0o660, os.makedev(major, minor))


@pytest.fixture
def root(tmp_path: Any) -> DriverRoot:
    made = DriverRoot(tmp_path / "root", count=2)
    for name, number in NODES.items():
        node(made.path + "/dev", name, *number)
    instance = made.path + "/proc/driver/nvidia/capabilities/gpu0/mig/gi3"
    write(instance + "/access", "DeviceFileMinor: 30\nDeviceFileMode: 292\n")
    write(instance + "/ci0/access", "DeviceFileMinor: 31\nDeviceFileMode: 292\n")
    write(instance + "/ci1/access", "DeviceFileMinor: x\n")
    for index in (0, 1):
        for name in (f"card{index + 1}", f"renderD{128 + index}", "version"):
            write(f"{made.path}/sys/bus/pci/devices/0000:0{index}:00.0/drm/{name}/dev", "")
    for path in ("etc/cufile.json", "run/udev/data", "tmp/nvidia-mps/control",
                 "run/nvidia-persistenced/socket", "run/nvidia-fabricmanager/socket"):  # fmt: skip
        write(f"{made.path}/{path}", "")
    return made


def changes(root: DriverRoot, gpu: int, asked: str, *extra: str) -> edits.Edits:
    found = host.load(root.path, root.path + "/state/host.json", extra)
    wanted = capabilities.requested(asked, list(capabilities.ALL))
    allocation = record(shares=[GpuShare(f"GPU-{gpu}", 1 << 30, 30)])
    return edits.edits_for(allocation, found, PATHS, "/usr/lib64", wanted)


def given(root: DriverRoot, gpu: int, asked: str, *extra: str) -> set[str]:
    devices = changes(root, gpu, asked, *extra).devices
    everything = {**root.nodes, **NODES}
    for device in devices:
        assert (device.major, device.minor) == everything[device.path[len("/dev/") :]]
    return {device.path[len("/dev/") :] for device in devices}


def test_a_container_gets_what_belongs_to_its_gpu(root: DriverRoot) -> None:
    drawing = {"nvidia-modeset", "dri/card1", "dri/renderD128"}
    assert given(root, 0, "") == {"nvidia0", *CONTROL, *MIG}
    assert given(root, 0, "graphics") == {"nvidia0", *CONTROL, *MIG, *drawing}
    other = {"nvidia-modeset", "dri/card2", "dri/renderD129"}
    assert given(root, 1, "utility") == {"nvidia1", *CONTROL}
    assert given(root, 1, "display") == {"nvidia1", *CONTROL, *other}


def test_what_belongs_to_another_gpu_is_taken_out_of_a_bundle_that_had_it(root: DriverRoot) -> None:
    before = config_json.apply({}, changes(root, 0, "all"))
    after = config_json.apply(before, changes(root, 1, "all"))
    assert {item["path"][len("/dev/") :] for item in after["linux"]["devices"]} == given(
        root, 1, "all"
    )


@pytest.mark.parametrize(
    ("setting", "devices", "mounts"),
    [
        ("gds", {"nvidia-fs0", "nvidia-fs1"}, {"/etc/cufile.json", "/run/udev"}),
        ("gdrcopy", {"gdrdrv"}, set()),
        ("mofed", {"infiniband/uverbs0", "infiniband/rdma_cm"}, set()),
        ("nvswitch", {"nvidia-nvswitchctl", "nvidia-nvswitch0"}, set()),
        (
            "imex",
            {"nvidia-caps-imex-channels/channel0", "nvidia-caps-imex-channels/channel7"},
            set(),
        ),
        ("mps", set(), {"/tmp/nvidia-mps"}),
    ],
)
def test_a_setting_gives_what_it_names_to_every_share(
    root: DriverRoot, setting: str, devices: set[str], mounts: set[str]
) -> None:
    plain, changed = changes(root, 1, ""), changes(root, 1, "", setting)
    assert given(root, 1, "", setting) == given(root, 1, "") | devices
    before = {inside for _, inside, _ in plain.mounts}
    assert {(source, inside) for source, inside, _ in changed.mounts if inside not in before} == {
        (root.path + path, path) for path in mounts
    }
    # Nodes that the host lacks are omitted.
    bare = DriverRoot(root.path + "/bare", count=2)
    assert given(bare, 1, "", setting) == given(bare, 1, "")


def test_services_are_found_when_they_run_and_given_by_what_is_asked(root: DriverRoot) -> None:
    sockets = {"/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket"}

    def shown(asked: str) -> set[str]:
        return {inside for _, inside, _ in changes(root, 1, asked).mounts} & sockets

    assert shown("utility") == sockets
    assert shown("compute") == set()
    os.unlink(root.path + "/run/nvidia-fabricmanager/socket")
    assert shown("utility") == {"/run/nvidia-persistenced/socket"}


def test_numbers_get_the_links_that_are_missing_on_the_host_itself(tmp_path: Any) -> None:
    dev = f"{tmp_path}/dev"
    os.makedirs(dev + "/char")
    for name, minor in (("nvidia0", 0), ("nvidia1", 1), ("nvidia-caps/nvidia-cap1", 7)):
        node(dev, name, 195, minor)
    os.symlink("../own", dev + "/char/195:1")
    wanted = [
        DeviceNode("/dev/nvidia0", 195, 0),
        DeviceNode("/dev/nvidia1", 195, 1),
        DeviceNode("/dev/nvidia-caps/nvidia-cap1", 195, 7),
        DeviceNode("/dev/nvidia2", 195, 2),  # not there
        DeviceNode("/dev/nvidia1", 195, 9),  # another number than there
    ]
    device_nodes.link_numbers(wanted, dev)
    device_nodes.link_numbers(wanted, dev)
    assert {name: os.readlink(f"{dev}/char/{name}") for name in os.listdir(dev + "/char")} == {
        "195:0": "../nvidia0",
        "195:1": "../own",
        "195:7": "../nvidia-caps/nvidia-cap1",
    }
    device_nodes.link_numbers(wanted, f"{tmp_path}/nowhere")
