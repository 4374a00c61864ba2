"""A start on arm64, emulated: launcher, Python and a libnvidia-ml for it, with Debian's layout.

The tests are those of amd64; the runtime that is started is this machine's.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from contract.runtime.test_runtime import (  # noqa: F401
    test_a_request_becomes_a_record_and_an_edited_config,
    test_a_request_by_env_counts,
    test_restarted_pod_gets_its_share_by_the_engines_identity,
)
from contract.runtime.test_runtime_driver import (  # noqa: F401
    test_a_libcuda_of_the_images_own_is_covered,
    test_the_driver_is_given_by_the_capabilities_asked,
    test_what_the_driver_cannot_give_is_refused_and_nothing_is_held,
)
from support.gpu.driver_root import DriverRoot
from support.host import arm64
from support.ledger.samples import shares_of
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import HALF_SHARE, Node, asking
from vcuda_oci.system.machine import ARM64


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return arm64.python(f"{tmp_path_factory.mktemp('python')}/python3")


@pytest.fixture(scope="module")
def installed(python: str, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    arm64.make("build/arm64/musl/version")
    return Installed(tmp_path_factory.mktemp("prefix"), python, "arm64")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    folder = tmp_path_factory.mktemp("driver")
    return DriverRoot(folder, ARM64.multiarch, count=2, cc=arm64.CC)


@pytest.fixture
def node(installed: Installed, driver: DriverRoot, tmp_path: Any) -> Node:
    return Node(installed, driver, tmp_path)


def test_the_shim_is_in_the_image_loaders_folder(node: Node) -> None:
    os.makedirs(f"{node.bundle}/rootfs{ARM64.multiarch}")
    assert node.create(asking()) == (0, "")
    assert shares_of(node.ledger) == {"box": HALF_SHARE}
    sources = {mount["destination"]: mount["source"] for mount in node.edited()["mounts"]}
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        assert "libvcuda" in sources[f"{ARM64.multiarch}/{library}"]
    assert sources["/usr/local/vcuda/driver/cuda"].startswith(node.driver.folder)
