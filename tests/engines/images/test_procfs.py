"""A hook that the low-level runtimes run shows a container a /proc of its own making.

No kernel here has /proc/driver/nvidia, so the folder above it is covered: the same file system, the
same hook, the same rules of the runtimes.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable

import pytest

from support.engines.base import Engine, Wanted
from support.engines.low_level import LowLevel
from support.product import Product
from vcuda_oci.edits import config_json, edits
from vcuda_oci.edits.edits import Edits
from vcuda_oci.host import procfs
from vcuda_oci.model.gpu import Gpu

GPU = Gpu("GPU-1", 1, 1, 1 << 30, "Soft", "0000:02:00.0")
LOOK = """
  cd /proc/driver && find . -type f | sort && grep Modify params && grep -c . version
  grep 'Device Minor' gpus/*/information
  echo x 2>/dev/null >params || echo read-only
"""


@pytest.mark.parametrize("name", ["runc-v1", "runc-v2", "crun-v2"])
def test_a_container_sees_its_own_gpu_in_proc(
    start_engine: Callable[[str], Engine], product: Product, container: str, scratch: str, name: str
) -> None:
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    bundle = engine.make_bundle(Wanted(container, ["sh", "-c", LOOK]))
    source = os.path.join(bundle, "procfs")
    procfs.write(product.driver_root + "/proc/driver/nvidia", source, [GPU])
    hook = product.prefix + "/lib/vcuda/vcuda-procfs-hook"
    changes = Edits()
    changes.hooks = [edits.procfs_hook([hook, bundle + "/rootfs", source, "driver"])]
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        config = json.load(file)
    with open(path, "w") as file:
        json.dump(config_json.apply(config, changes), file)
    try:
        result = engine.call("run", "--bundle", bundle, container)
    finally:
        shutil.rmtree(bundle)
    assert (result.rc, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "./gpus/0000:02:00.0/information",
        "./params",
        "./version",
        "ModifyDeviceFiles: 0",
        "1",
        "Device Minor: \t 1",
        "read-only",
    ]
