"""Round the shim: it is a cooperative limit, and these programs do not cooperate.

Each gets more memory than its share, as README.md and docs/security.md say. What the kernel holds,
the device nodes, holds for them too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import Any

import pytest

from support.engines.base import Wanted
from support.product import REPOSITORY
from support.wrapper.entry_points import (
    FILLED,
    LIMIT,
    MAIN_ENTRY_POINTS,
    EntryPoint,
    filled,
    unchanged,
)
from vcuda_oci.model import names
from vcuda_oci.pages import layout

GREEDY = f"vcuda-workload alloc --chunk {LIMIT}"
OTHER_GPU = "mknod /tmp/1 c 195 1; open-node /tmp/1 /dev/nvidia1"

pytestmark = pytest.mark.parametrize("entry_point", MAIN_ENTRY_POINTS, indirect=True)


def by_the_private_copy(rootfs: str, uuid: str) -> str:
    """The driver's own library, under the name that the loader looks for."""
    return f"ln -s {names.GUEST_CUDA} /tmp/libcuda.so.1; LD_LIBRARY_PATH=/tmp {GREEDY}"


def by_a_driver_of_its_own(rootfs: str, uuid: str) -> str:
    """As a program does that links the driver's code, or makes its system calls itself."""
    os.mkdir(f"{rootfs}/opt")
    shutil.copy(f"{REPOSITORY}/build/softgpu/libcuda.so.1", f"{rootfs}/opt/libmine.so.1")
    os.symlink("libmine.so.1", f"{rootfs}/opt/libcuda.so.1")
    return f"LD_LIBRARY_PATH=/opt {GREEDY}"


def by_pages_of_its_own(rootfs: str, uuid: str) -> str:
    """Root in the container moves the folder with the pages away and puts another in its place."""
    share = layout.LimitsGpu(uuid, 16 * LIMIT, 100, 100, layout.POLICY_FIXED, 1_000_000, 100, 0, 0)
    with open(f"{rootfs}/limits", "wb") as file:
        file.write(layout.limits_page([share]))
    ours = "/usr/local/vcuda"
    return (
        f"mv {ours} /away && mkdir -p {ours}/driver && cp /limits /away/usage {ours}/"
        f" && cp /away/driver/* {ours}/driver/ && {GREEDY}"
    )


WAYS = [by_the_private_copy, by_a_driver_of_its_own, by_pages_of_its_own]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_program_that_bypasses_the_shim_sees_only_the_granted_gpu(
    entry_point: EntryPoint, container: str, way: Any
) -> None:
    product = entry_point.product
    listed = subprocess.run(
        [f"{product.prefix}/bin/vcuda", "--config", product.config, "gpus", "--json"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    uuid = json.loads(listed)[0]["uuid"]
    stderr: list[str] = []

    def prepared(config: dict[str, Any], bundle: str) -> None:
        script = f"{way(f'{bundle}/rootfs', uuid)}; {OTHER_GPU} >&2"
        config["process"]["args"] = ["sh", "-c", script]

    result = entry_point.run(entry_point.with_share(container), prepared)
    stderr = result.stderr.splitlines()
    assert filled(result)["allocated_bytes"] > LIMIT
    assert stderr == ["/tmp/1: EPERM", "/dev/nvidia1: ENOENT"]


def test_a_rule_for_every_nvidia_device_opens_no_other_gpu(
    entry_point: EntryPoint, container: str
) -> None:
    """As `docker run --device-cgroup-rule 'c 195:* rwm'` writes it."""

    def wide(config: dict[str, Any], bundle: str) -> None:
        rule = {"allow": True, "type": "c", "major": 195, "access": "rwm"}
        config["linux"]["resources"]["devices"].append(rule)

    script = f"{OTHER_GPU}; open-node /dev/nvidia0 /dev/nvidiactl; {GREEDY} >&2"
    result = entry_point.run(entry_point.with_share(container, "sh", "-c", script), wide)
    other, hidden, *own = result.stdout.splitlines()
    assert (other, hidden) == ("/tmp/1: EPERM", "/dev/nvidia1: ENOENT")
    assert all(line.endswith((": ENXIO", ": ok")) for line in own)
    assert json.loads(result.stderr.splitlines()[-1]) == FILLED


def test_a_container_without_a_share_reaches_no_gpu_by_any_of_these_ways(
    entry_point: EntryPoint, container: str
) -> None:
    def prepared(config: dict[str, Any], bundle: str) -> None:
        script = f"{by_a_driver_of_its_own(f'{bundle}/rootfs', '')}; mknod /tmp/0 c 195 0"
        config["process"]["args"] = ["sh", "-c", f"{script}; open-node /tmp/0 /dev/nvidia0 >&2"]

    result = entry_point.run(Wanted(container, []), prepared)
    assert "allocated_bytes" not in result.stdout
    assert result.stderr.splitlines()[-2:] == ["/tmp/0: EPERM", "/dev/nvidia0: ENOENT"]


def test_no_variable_leads_round_it_where_no_other_driver_is(
    entry_point: EntryPoint, container: str
) -> None:
    """Not the folder of the driver's own libraries either, which a program may find and list."""
    words = {"CUDA_VISIBLE_DEVICES": "0,1", "LD_BIND_NOW": "1", "VCUDA_MEMORY": "16GiB",
             "NVIDIA_VISIBLE_DEVICES": "all",
             "LD_LIBRARY_PATH": f"{names.GUEST_DRIVER}:/usr/lib/x86_64-linux-gnu",
             "CUDA_MPS_PIPE_DIRECTORY": "/tmp", "LD_PRELOAD": ""}  # fmt: skip
    asked = entry_point.with_share(container, "sh", "-c", GREEDY)
    result = entry_point.run(Wanted(container, asked.args, words, asked.annotations), unchanged)
    assert filled(result) == FILLED
