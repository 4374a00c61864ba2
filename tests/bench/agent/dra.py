"""How long the DRA driver takes to prepare a claim, with and without the read from the API.

8 GPUs of an H200's size that other claims share. Records and pages are on a tmpfs, as /run is; the
CDI specs too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.agent.agent import GPUS, MEMORY_MIB
from bench.result import Figure
from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.api_server.fake_api_objects import CLAIMS, SLICES
from support.kubelet.dra_claims import NODE, SPACE, claim, result
from support.kubelet.fake_dra_kubelet import DraKubelet
from support.product import install
from support.waiting import until
from vcuda_oci.start import apply_share
from vcuda_plugin.agent.dra.prepared import PreparedClaims

CALLS, HELD = 200, 64
GOAL_MS, GOAL_WITH_READ_MS = 5.0, 30.0
NAME = "DRA: prepare a claim, 99 of 100"


def measure(say: Callable[[str], None]) -> list[Figure]:
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(dir="/dev/shm", prefix="vb")
        stack.callback(shutil.rmtree, folder)
        prefix = folder + "/usr"
        install(prefix, folder + "/etc")
        node = AgentNode(Path(folder), prefix, "--gpus", str(GPUS), "--memory", f"{MEMORY_MIB}MiB")
        stack.callback(node.close)
        node.kubelet.start()
        node.configure(gpu_offer="dra")
        api = stack.enter_context(KubeApi().running())
        words = ["--config", node.config, "--kubelet-dir", node.kubelet.folder]
        words += ["--kubeconfig", api.kubeconfig(folder + "/kubeconfig"), "--node-name", NODE]
        agent = Agent([node.program, *words, "--cdi-dir", folder + "/cdi"], 30)
        stack.callback(agent.end)
        agent.await_ready()
        until(lambda: bool(api.objects[SLICES]))
        (pool,) = api.objects[SLICES].values()
        uuids = [d["attributes"]["uuid"]["string"] for d in pool["spec"]["devices"]]
        kubelet = DraKubelet(os.path.dirname(node.kubelet.folder))
        stack.callback(kubelet.close)
        kubelet.register()
        for number in range(HELD):
            uid = f"held-{number}"
            tree = claim(uid, result(uuids[number % GPUS], "10", "1Gi"))
            api.set(CLAIMS, f"{SPACE}/claim-{uid}", tree)
            _must(kubelet.prepare((SPACE, f"claim-{uid}", uid))[uid].error)
        say(f"{CALLS} claims beside {HELD} others, over the kubelet's socket")
        mine = claim("mine", result(uuids[0], "10", "1Gi"))
        api.set(CLAIMS, f"{SPACE}/claim-mine", mine)
        named = (SPACE, "claim-mine", "mine")
        read = _times(
            lambda: _must(kubelet.prepare(named)["mine"].error),
            lambda: _must(kubelet.unprepare(named)["mine"].error),
        )
        say("the same, after the claim is read")
        apply_share.SHIM = prefix + "/lib/vcuda/libvcuda.so.1"
        claims = PreparedClaims(node.config, folder + "/cdi", NODE)
        bare = _times(lambda: claims.prepare(mine, "mine"), lambda: claims.unprepare("mine"))
    return [
        Figure(NAME, _late(bare), "ms", GOAL_MS, {}, "after the claim is read"),
        Figure(NAME, _late(read), "ms", GOAL_WITH_READ_MS, {}, "with the read"),
    ]


def _must(error: str) -> None:
    assert not error, error


def _times(act: Callable[[], object], undo: Callable[[], object]) -> list[float]:
    """Milliseconds of each `act`, undone before the next."""
    found = []
    for _ in range(CALLS):
        began = time.monotonic()
        act()
        found.append(1000 * (time.monotonic() - began))
        undo()
    return found


def _late(times: Sequence[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]
