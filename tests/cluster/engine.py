"""containerd as a node has it: pods with a network, and the handler that `vcuda configure` adds.

CONTAINERD names a folder with another containerd than the system's, of version 1.7 or later.
"""

from __future__ import annotations

import json
import os
import subprocess

from support.engines.base import IMAGE
from support.engines.containerd import CONFIG
from support.engines.containerd_cri import ContainerdCri
from support.host.private_host import PATH

VARIABLE = "CONTAINERD"
NOT_GIVEN = f"containerd 1.6 injects no CDI devices: set {VARIABLE} to a folder with a newer one"
# Pods reach their host and nothing else.
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "subnet": "10.244.0.0/24",
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}
OF_NODES = """
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""
# containerd 1.7 injects CDI devices if this is set; containerd 2 does so by default.
CRI = '[plugins."io.containerd.grpc.v1.cri"]\n'
CDI = "enable_cdi = true\n"
# The same as containerd 2 has it.
CONFIG_3 = """version = 3
root = "{folder}/root"
state = "{folder}/state"

[grpc]
address = "{socket}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "{snapshotter}"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "{default}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def given() -> str:
    """The folder of another containerd, or ""."""
    return os.environ.get(VARIABLE, "")


def is_1_7() -> bool:
    said = subprocess.run([given() + "/containerd", "--version"], capture_output=True, text=True)
    return " v1.7." in said.stdout


class NodeEngine(ContainerdCri):
    """Its file is written once, and edited by the product."""

    name = "containerd-node"
    _config = ""

    def open(self) -> None:
        self.host.check(["mkdir", "-p", "/etc/cni/net.d"])
        network = self.host.write("10-pods.conflist", json.dumps(NETWORK))
        self.host.check(["cp", network, "/etc/cni/net.d/"])
        # A node has bundles in /run, which is a tmpfs too: the wrapper waits until they are stored.
        state = self.host.path("state")
        self.host.check(["mkdir", state])
        self.host.check(["mount", "-t", "tmpfs", "tmpfs", state])
        super().open()

    def config(self) -> str:
        if not self._config:
            text = CONFIG + OF_NODES
            if given():
                text = text.replace(CRI, CRI + CDI) if is_1_7() else CONFIG_3
            self._config = self.host.write("config.toml", self.filled(text, default="runc"))
        return self._config

    def daemon_command(self) -> list[str]:
        # It looks for its shim in PATH.
        path = f"PATH={given()}:{PATH}" if given() else f"PATH={PATH}"
        return ["env", path, *super().daemon_command()]

    def name_image(self, name: str) -> None:
        """Give the tests' image another name."""
        self.host.check(self.command("images", "tag", IMAGE, name))
