"""What a container with a share costs through CRI where the agent runs, over one with plain runc.

Real containerd, a fake kubelet, the agent as it is installed. A round creates and starts one
container each way in random order, each in a fresh pod with its sandbox started.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import statistics
import time
from collections.abc import Callable

from bench.result import Figure
from bench.starts.ctr import files_in
from contract.agent.test_device_plugin import CORE, MEMORY
from support.host import own_run
from support.kubelet.pod_lives import Lives
from support.kubelet.pod_node import node
from support.waiting import until
from vcuda_plugin.agent.ledger import sweep

ROUNDS, WARM_UP = 40, 3
ASKS = {CORE: 7, MEMORY: 2}
PLAIN, SHARE = "plain", "share"


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises AssertionError: something was left behind."""
    times: dict[str, list[float]] = {PLAIN: [], SHARE: []}
    with contextlib.ExitStack() as stack:
        own_run.sweep()
        folder = own_run.scratch_folder()
        stack.callback(shutil.rmtree, folder)
        lives = stack.enter_context(node(files_in(folder), folder))
        for number in range(ROUNDS + WARM_UP):
            for way in random.sample(list(times), len(times)):
                once = _seconds(lives, way, f"{way}{number}")
                times[way] += [once] if number >= WARM_UP else []
            if number % 10 == 0:
                say(f"create through CRI: round {number} of {ROUNDS}")
        # A pod that ends keeps its share until its sandbox is gone and the agent's sweep sees that.
        until(lambda: not lives.leftovers(), seconds=3 * sweep.PERIOD_SECONDS)
    ratio = statistics.median(one / base for one, base in zip(times[SHARE], times[PLAIN]))
    plain_ms = statistics.median(times[PLAIN]) * 1e3
    return [
        Figure("agent.CRI create + start, plain", plain_ms, "ms", None, {}),
        Figure("agent.CRI create + start, share", ratio, "x plain", 1.20, {}),
    ]


def _seconds(lives: Lives, way: str, name: str) -> float:
    cri = lives.cri
    runtime = lives.product.runtime if way == SHARE else cri.plain_runtime()
    with cri.using(runtime):
        pod = cri.run_pod(name)
        annotations = None
        if way == SHARE:
            annotations = lives.kubelet.admit(pod.uid, "main", ASKS).annotations
        began = time.perf_counter()
        cri.start_container(pod, ["sleep", "100"], annotations=annotations)
        seconds = time.perf_counter() - began
        cri.remove_pod(pod)
        lives.kubelet.forget(pod.uid)
    return seconds
