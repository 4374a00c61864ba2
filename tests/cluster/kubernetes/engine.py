"""containerd or CRI-O as a node has it: pods with a network, and the handler of `vcuda configure`.

CONTAINERD names a folder with another containerd than the system's, of version 1.7 or later. CRIO
names one with CRI-O, which then runs in place of containerd.
"""

from __future__ import annotations

import json
import os
import subprocess

from support.engines import crio
from support.engines.base import IMAGE
from support.engines.containerd import CONFIG
from support.engines.containerd_cri import ContainerdCri
from support.host.private_host import PATH, PrivateHost

VARIABLE = "CONTAINERD"
NOT_GIVEN = (
    f"containerd 1.6 injects no CDI devices: set {VARIABLE} to a folder with a newer one, "
    f"or {crio.VARIABLE} to one with CRI-O"
)
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


# CRI-O's defaults, but for paths and for what the tests' machine lacks: systemd's cgroups, overlays
# in a scratch folder, and crun, the default runtime, which refuses hybrid cgroups.
CRIO_CONFIG = f"""{crio.PLACES}pause_command = ""

[crio.network]
plugin_dirs = ["/usr/lib/cni"]
{crio.RUNTIME}
[crio.runtime.runtimes.runc]
runtime_path = "{{runc}}"
"""


def given() -> str:
    """The folder of another containerd, or ""."""
    return os.environ.get(VARIABLE, "")


def injects_cdi() -> bool:
    return bool(given() or os.environ.get(crio.VARIABLE))


def node_engine() -> type[ContainerdNode | CrioNode]:
    return CrioNode if os.environ.get(crio.VARIABLE) else ContainerdNode


def is_1_7() -> bool:
    said = subprocess.run([given() + "/containerd", "--version"], capture_output=True, text=True)
    return " v1.7." in said.stdout


def _prepare(host: PrivateHost, state: str) -> None:
    """The pods' network, and a folder for what the engine keeps until a reboot.

    A node has bundles in /run, which is a tmpfs too: the wrapper waits until they are stored.
    """
    host.check(["mkdir", "-p", "/etc/cni/net.d", state])
    network = host.write("10-pods.conflist", json.dumps(NETWORK))
    host.check(["cp", network, "/etc/cni/net.d/"])
    host.check(["mount", "-t", "tmpfs", "tmpfs", state])


class ContainerdNode(ContainerdCri):
    """Its file is written once, and edited by the product. state: what a reboot empties."""

    name = "containerd-node"
    _config = ""

    def open(self) -> None:
        self.state = self.host.path("state")
        _prepare(self.host, self.state)
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

    def add_handler(self, vcuda: list[str]) -> None:
        """vcuda: the words that run the product's command."""
        words = ["configure", "containerd", "--config", self.config()]
        self.host.check([*vcuda, *words, "--runtime-path", self.runtime])

    def name_image(self, name: str) -> None:
        """Give the tests' image another name."""
        self.host.check(self.command("images", "tag", IMAGE, name))


# runc without what the machine of the tests lacks: CAP_SYS_RESOURCE, which privileged containers
# have and a negative oom_score_adj needs, and a hugetlb controller. containerd does without by
# itself, or has a setting.
RUNC = """#!/usr/bin/python3 -ISB
import json, os, sys
words = sys.argv[1:]
if "--bundle" in words:
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    process, linux = config["process"], config["linux"]
    process["oomScoreAdj"] = max(0, process.get("oomScoreAdj", 0))
    linux.get("resources", {{}}).pop("hugepageLimits", None)
    for kind, names in process.get("capabilities", {{}}).items():
        process["capabilities"][kind] = [name for name in names if name != "CAP_SYS_RESOURCE"]
    with open(path, "w") as file:
        json.dump(config, file)
os.execv("{runc}", ["runc", *words])
"""


class CrioNode(crio.Crio):
    name = "crio-node"
    config = CRIO_CONFIG
    runroot = state = "/run/containers/storage"  # CRI-O's default

    def open(self) -> None:
        _prepare(self.host, self.state)
        super().open()

    def plain_runtime(self) -> str:
        return self.host.write("runc", RUNC.format(runc=super().plain_runtime()), 0o755)

    def add_handler(self, vcuda: list[str]) -> None:
        """vcuda: the words that run the product's command, which asks the running CRI-O."""
        words = ["configure", "crio", "--runtime-path", self.runtime]
        self.host.check(["env", f"PATH={self.path()}", *vcuda, *words])

    def name_image(self, name: str) -> None:
        """Give the tests' image another name."""
        self.podman("tag", IMAGE, name)
