"""A pod of higher priority preempts others, with kube-scheduler's calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_server.fake_api_server import PODS, FakeApiServer
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import Extender
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.bind.evict import WAIT_SECONDS


def test_pod_of_higher_priority_fits_after_its_victims_end(tmp_path: Any) -> None:
    api = FakeApiServer()
    api.add(node("a", gpus_of("a", 16, 16)))
    for name, gpu, core in (("p", 0, 60), ("q", 1, 30), ("r", 1, 30)):
        shares = {"main": [GpuShare(f"GPU-a-{gpu}", 1, core)]}
        api.add(pod(name, container(core=core), node="a", shares=shares))
    asking = pod("asking", container(core=100), priority=1000)
    proposed = {"a": {"Pods": [{"UID": "uid-q"}, {"UID": "uid-r"}], "NumPDBViolations": 0}}
    wanted = {"Pod": asking, "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed}
    with contextlib.ExitStack() as stack:
        stack.enter_context(api.running())
        api.put(asking)
        running = stack.enter_context(extender.running(api, tmp_path))
        running.wait_ready()
        assert list(running.filter(asking, "a")["FailedNodes"]) == ["a"]
        victims = {"a": {"Pods": [{"UID": "uid-p"}], "NumPDBViolations": 0}}
        assert running.post("preempt", wanted) == {"NodeNameToMetaVictims": victims}
        assert running.bind(asking, "a").startswith("node a: ")
        api.delete("default/p")
        running.wait(lambda: running.filter(asking, "a")["NodeNames"] == ["a"])
        assert running.bind(asking, "a") == ""
        # A pod without a GPU is not ours to judge.
        without_gpu = {**wanted, "Pod": pod("x", {"name": "c"})}
        assert running.post("preempt", without_gpu) == {"NodeNameToMetaVictims": proposed}


LOW = 5


@contextlib.contextmanager
def two_gpus_with_60_each(folder: Any, *words: str) -> Iterator[tuple[FakeApiServer, Extender]]:
    """Node a with a pod of priority LOW on each GPU, and pod "r" of 30 % on the second."""
    api = FakeApiServer()
    api.add(node("a", gpus_of("a", 16, 16)))
    for name, gpu, core in (("p", 0, 60), ("q", 1, 60), ("r", 1, 30)):
        shares = {"main": [GpuShare(f"GPU-a-{gpu}", 1, core)]}
        api.add(pod(name, container(core=core), node="a", shares=shares, priority=LOW))
    with api.running(), extender.running(api, folder, *words) as running:
        running.wait_ready()
        yield api, running


def names(api: FakeApiServer) -> list[str]:
    with api.lock:
        return sorted(key.partition("/")[2] for key in api.objects[PODS])


def test_pod_of_one_gpu_is_evicted_though_the_nodes_sums_suffice(tmp_path: Any) -> None:
    asking = pod("asking", container(core=50), priority=1000)
    with two_gpus_with_60_each(tmp_path, "--evict") as (api, running):
        api.put(asking)
        # kube-scheduler tries again while the victim ends.
        for _ in range(3):
            assert list(running.filter(asking, "a")["FailedNodes"]) == ["a"]
        running.wait(lambda: running.filter(asking, "a")["NodeNames"] == ["a"])
        assert names(api) == ["asking", "q", "r"]
        assert running.bind(asking, "a") == ""
        time.sleep(WAIT_SECONDS + 0.5)
        assert names(api) == ["asking", "q", "r"]
    line = "evicted default/p (uid-p) from node a for pod default/asking, which fits no other GPU"
    assert extender.log(tmp_path).count(line) == 1


@pytest.mark.parametrize("case", ["no flag", "no higher priority", "never", "nominated", "deleted"])
def test_no_pod_is_evicted_for_one_that_may_not_or_need_not(tmp_path: Any, case: str) -> None:
    asking = pod("asking", container(core=50), priority=LOW if "higher" in case else 1000)
    if case == "never":
        asking["spec"]["preemptionPolicy"] = "Never"
    words = [] if case == "no flag" else ["--evict"]
    with two_gpus_with_60_each(tmp_path, *words) as (api, running):
        api.put(asking)
        running.filter(asking, "a")
        if case == "nominated":
            api.put({**asking, "status": {"nominatedNodeName": "b"}})
        if case == "deleted":
            api.delete("default/asking")
        time.sleep(WAIT_SECONDS + 0.5)
        running.filter(asking, "a")
        assert [name for name in names(api) if name != "asking"] == ["p", "q", "r"]
