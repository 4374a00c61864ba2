"""containerd as a node has it: pods with a network, and the handler that `vcuda configure` adds."""

from __future__ import annotations

import json

from support.engines.base import IMAGE
from support.engines.cri import Cri

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
CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
# Without CAP_SYS_RESOURCE a negative oom_score_adj fails the pod.
restrict_oom_score_adj = true
disable_tcp_service = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


class NodeEngine(Cri):
    """Its file is written once, and edited by the product."""

    name = "containerd-node"
    _config = ""

    def open(self) -> None:
        self.host.check(["mkdir", "-p", "/etc/cni/net.d"])
        network = self.host.write("10-pods.conflist", json.dumps(NETWORK))
        self.host.check(["cp", network, "/etc/cni/net.d/"])
        super().open()

    def config(self) -> str:
        if not self._config:
            text = CONFIG.format(
                folder=self.host.folder,
                socket=self.socket,
                image=IMAGE,
                snapshotter=self.snapshotter,
            )
            self._config = self.host.write("config.toml", text)
        return self._config

    def name_image(self, name: str) -> None:
        """Give the tests' image another name."""
        self.host.check(self.command("images", "tag", IMAGE, name))
