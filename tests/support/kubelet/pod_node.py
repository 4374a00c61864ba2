"""A node for many pods: containerd, a fake kubelet and the agent."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator

from contract.agent.test_device_plugin import CORE, MEMORY
from support.engines.base import Files
from support.engines.containerd_cri import ContainerdCri
from support.kubelet.fake_kubelet import Kubelet
from support.kubelet.pod_lives import Lives
from support.product import Product
from support.waiting import until
from vcuda_oci.host import host

GPUS = 8


class InMemory(ContainerdCri):
    """Stores everything on a tmpfs, because disks are not tested."""

    snapshotter = "overlayfs"

    def open(self) -> None:
        for folder in ("state", "root"):
            os.mkdir(self.host.path(folder))
            self.host.check(["mount", "-t", "tmpfs", "vcuda-pods", self.host.path(folder)])
        super().open()


@contextlib.contextmanager
def node(files: Files, folder: str) -> Iterator[Lives]:
    """Restart the agent whenever it dies, as systemd does, until the block ends."""
    engine = InMemory(files)
    try:
        product = Product(folder + "/product", GPUS)
        product.configure(engine)
        kubelet = Kubelet(folder + "/kubelet")
        kubelet.start()
        program = f"{product.prefix}/bin/vcuda-node-agent"
        words = shlex.join([program, "--config", product.config, "--kubelet-dir", kubelet.folder])
        engine.host.daemon(["sh", "-c", f"while :; do {words}; sleep 0.2; done"], "agent.log")
        try:
            until(lambda: all(kubelet.healthy(name) for name in (CORE, MEMORY)))
            with engine.using(product.runtime):
                yield Lives(engine, product, kubelet, _nodes(product))
        finally:
            kubelet.stop()
    finally:
        engine.close()


def _nodes(product: Product) -> dict[str, str]:
    facts = host.load(product.driver_root, product.prefix + "/host.json")
    return {gpu.uuid: f"nvidia{gpu.minor}" for gpu in facts.gpus}
