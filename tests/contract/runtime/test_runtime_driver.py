"""The wrapper gives the requested driver capabilities and refuses missing ones."""

from __future__ import annotations

import os
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import VERSION, DriverRoot
from support.ledger.samples import left_in
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import HALF, Node, asking, by_env


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("prefix"))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"), count=2)


@pytest.fixture
def node(product: Installed, driver: DriverRoot, tmp_path: Any) -> Node:
    return Node(product, driver, tmp_path)


def mounted(node: Node) -> set[str]:
    return {os.path.basename(mount["destination"]) for mount in node.edited()["mounts"]}


def test_the_driver_is_given_by_the_capabilities_asked(node: Node) -> None:
    ours = {"cuda", "nvml", "limits", "usage"}  # private copies, and pages
    cuda = {"libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}"}
    nvml = {"libnvidia-ml.so.1", f"libnvidia-ml.so.{VERSION}"}
    assert node.create(asking(HALF, "NVIDIA_DRIVER_CAPABILITIES=compute")) == (0, "")
    assert mounted(node) == ours | cuda
    assert node.create(asking(HALF, "NVIDIA_DRIVER_CAPABILITIES=utility")) == (0, "")
    assert mounted(node) == ours | nvml | {"nvidia-smi"}


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            "NVIDIA_DRIVER_CAPABILITIES=cuda",
            "env NVIDIA_DRIVER_CAPABILITIES: unknown capability 'cuda'; use all or compute, "
            "utility, graphics, video, display, ngx, compat32",
        ),
        (
            "NVIDIA_REQUIRE_CUDA=cuda>=13.1",
            "env NVIDIA_REQUIRE_CUDA: 'cuda>=13.1' does not hold: GPU-0 has cuda 13.0, driver "
            "580.95.05, arch 9.0, brand tesla; take an older image, or a newer driver; "
            "NVIDIA_DISABLE_REQUIRE=1 skips this",
        ),
    ],
)
def test_what_the_driver_cannot_give_is_refused_and_nothing_is_held(
    node: Node, variable: str, message: str
) -> None:
    spec = asking(HALF, variable)
    assert node.create(spec) == (1, f"vcuda-container-runtime: {message} (allocation box)\n")
    assert node.edited() == spec
    assert [name for name in left_in(node.ledger.state_dir) if name != "host.json"] == []
    assert node.runtime.calls() == []


def test_a_container_that_asks_for_no_share_is_asked_for_no_driver(node: Node) -> None:
    spec = by_env("NVIDIA_REQUIRE_CUDA=cuda>=99", "NVIDIA_DRIVER_CAPABILITIES=nonsense")
    assert node.create(spec) == (0, "")
    assert node.edited() == spec


def test_a_libcuda_of_the_images_own_is_covered(node: Node) -> None:
    own = "/usr/local/cuda-12.4/compat"
    write(f"{node.bundle}/rootfs{own}/libcuda.so.550.54.14", "")
    os.symlink("libcuda.so.550.54.14", f"{node.bundle}/rootfs{own}/libcuda.so.1")
    assert node.create(asking()) == (0, "")
    mounts = {mount["destination"]: mount["source"] for mount in node.edited()["mounts"]}
    shim = node.installed.prefix + "/lib/vcuda/libvcuda.so.1"
    assert mounts[own + "/libcuda.so.550.54.14"] == shim


def test_where_the_kernel_shows_its_driver_a_hook_shows_the_containers_gpus_instead(
    driver: DriverRoot, tmp_path: Any
) -> None:
    """The kernel here has no driver/nvidia, so this product takes another folder for it."""
    installed = Installed(tmp_path / "prefix")
    path = installed.python_path + "/vcuda_oci/model/names.py"
    with open(path) as file:
        text = file.read()
    write(path, text.replace('KERNEL_DRIVER = "driver/nvidia"', 'KERNEL_DRIVER = "tty"'))
    node = Node(installed, driver, tmp_path)
    assert node.create(asking()) == (0, "")
    command = [
        installed.prefix + "/lib/vcuda/vcuda-procfs-hook",
        node.bundle + "/rootfs",
        f"{node.ledger.containers}/box/procfs",
        "tty",
    ]
    env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    assert node.edited()["hooks"]["createRuntime"] == [
        {"path": command[0], "args": command, "env": env, "timeout": 30}
    ]
    with open(command[2] + "/params") as file:
        assert file.read() == "ModifyDeviceFiles: 0\n"
    with node.ledger:
        node.ledger.remove("box")
    assert [name for name in left_in(node.ledger.state_dir) if name != "host.json"] == []


def test_where_the_kernel_shows_no_driver_there_is_no_hook_for_it(node: Node) -> None:
    assert node.create(asking()) == (0, "")
    assert "hooks" not in node.edited()
