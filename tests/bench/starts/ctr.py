"""What `ctr run` costs through the wrapper, with a share and without, as a multiple of `ctr run`
with plain runc.

Everything else is the same: containerd, its runc shim, the image, the snapshotter. Each round runs
each way once, in random order.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable, Mapping

from bench.result import Figure
from support.agent.claim_server import ClaimServer
from support.bundle import image, rootfs
from support.engines.base import IMAGE, Files
from support.engines.containerd import Ctr
from support.host import own_run
from support.product import Product

ROUNDS = 200
WARM_UP = 3
SHARE = ("--annotation=vcuda.io/core=30", "--annotation=vcuda.io/memory=1GiB")


class Containerd(Ctr):
    """As a host has it: bundles and records on a tmpfs, images under overlays."""

    snapshotter = "overlayfs"

    def open(self) -> None:
        for folder in ("state", "vcuda"):
            os.mkdir(self.host.path(folder))
            self.host.check(["mount", "-t", "tmpfs", "vcuda-bench", self.host.path(folder)])
        super().open()

    def seconds(self, runtime: str, container_id: str, *options: str) -> float:
        """Of one container's whole life. Raises RuntimeError: it did not run."""
        words = [f"--snapshotter={self.snapshotter}", f"--runc-binary={runtime}", *options]
        words += [f"--cgroup={self.host.cgroup_parent}/{container_id}", IMAGE, container_id]
        begin = time.perf_counter()
        self.host.check(self.command("run", "--rm", *words, "/bin/true"))
        return time.perf_counter() - begin


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: a container did not run, or left something behind."""
    with contextlib.ExitStack() as stack:
        own_run.sweep()
        folder = own_run.scratch_folder()
        stack.callback(shutil.rmtree, folder)
        say("starting containerd")
        engine = Containerd(files_in(folder))
        stack.callback(engine.close)
        product = Product(folder + "/product")
        product.configure(engine)
        server = ClaimServer(engine.host, product, product.state_dir(engine))
        stack.callback(server.close)
        ways = {
            "plain": (engine.plain_runtime(), ()),
            "none": (product.runtime, ()),
            "share": (product.runtime, SHARE),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(ROUNDS + WARM_UP):
            for name in random.sample(list(ways), len(ways)):
                runtime, options = ways[name]
                once = engine.seconds(runtime, f"{name}{number}", *options)
                times[name] += [once] if number >= WARM_UP else []
            if number % 20 == 0:
                say(f"round {number} of {ROUNDS}")
        left = engine.host.check(["ls", product.state_dir(engine) + "/allocations"])
        if left:
            raise RuntimeError(f"left in the ledger: {left}")

    def ratio(name: str) -> float:
        return statistics.median(one / base for one, base in zip(times[name], times["plain"]))

    plain_ms = statistics.median(times["plain"]) * 1e3
    return [
        Figure("start.ctr_run_plain", plain_ms, "ms", None, {}),
        Figure("start.ctr_run_no_share", ratio("none"), "x plain", 1.05, {}),
        Figure("start.ctr_run_with_agent", ratio("share"), "x plain", 1.1, {"NVIDIA CDI": 1.54}),
    ]


def files_in(folder: str, programs: Mapping[str, str] | None = None) -> Files:
    """What an engine needs, built in `folder`. programs: host paths by paths in the image."""
    tree, layer, packed = folder + "/rootfs", folder + "/layer.tar", folder + "/image"
    rootfs.build(tree, programs)
    rootfs.as_tar(tree, layer)
    image.write(packed, layer, IMAGE)
    return Files(tree, layer, packed, "")
