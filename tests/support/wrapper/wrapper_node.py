"""A node with the installed wrapper and one bundle."""

from __future__ import annotations

import json
import os
from typing import Any

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.ledger.samples import GIB
from support.wrapper.installed_wrapper import Installed
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare

ENV = {"PATH": "/usr/bin:/bin", "HOME": "/root", "X": "a=b"}
SPEC: dict[str, Any] = {
    "ociVersion": "1.0.2",
    "process": {"args": ["true"], "env": ["PATH=/bin"]},
    "root": {"path": "rootfs"},
    "linux": {"newField": [1, {"kept": None}]},
}
HALF = {"vcuda.io/core": "50", "vcuda.io/memory": "4GiB"}
HALF_SHARE = [GpuShare("GPU-0", 4 * GIB, 50)]
CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.sandbox-uid": "uid1",
    "io.kubernetes.cri.sandbox-namespace": "team",
    "io.kubernetes.cri.sandbox-name": "web",
    "io.kubernetes.cri.container-name": "main",
    "io.kubernetes.cri.sandbox-id": "sandbox1",
}


def asking(annotations: Any = HALF, *env: str) -> dict[str, Any]:
    return {**SPEC, "annotations": annotations, "process": {"env": ["PATH=/bin", *env]}}


def by_env(*env: str) -> dict[str, Any]:
    return asking({}, *env)


class Node:
    """A driver root, the installed wrapper, a bundle, and the results of a create."""

    def __init__(self, installed: Installed, driver: DriverRoot, folder: Any) -> None:
        self.installed, self.driver, self.folder = installed, driver, str(folder)
        self.runtime = installed.runtime
        self.runtime.forget()
        write(self.runtime.folder + "/answers", "")
        self.ledger = Ledger(self.folder + "/state")
        self.bundle = self.folder + "/bundle"
        os.makedirs(self.bundle + "/rootfs/usr/lib64")
        self.config = self.bundle + "/config.json"
        self.settings = {
            "runtime": self.runtime.path,
            "state_dir": self.ledger.state_dir,
            "driver_root": driver.path,
        }
        self.moved = False
        self.configure()

    def configure(self, **settings: str) -> None:
        self.moved = self.moved or "state_dir" in settings
        self.installed.configure(**{**self.settings, **settings})

    def create(self, spec: Any, *options: str, id: str = "box", **rest: Any) -> tuple[int, str]:
        """Run `create`; return exit status and stderr."""
        write(self.config, spec if isinstance(spec, (str, bytes)) else json.dumps(spec), 0o640)
        words = [*options, "create", "--bundle", self.bundle, id]
        ran = self.installed.call(*words, env=ENV, **rest)
        return ran.returncode, ran.stderr.decode()

    def edited(self) -> Any:
        with open(self.config) as file:
            return json.load(file)
