"""A pod of higher priority preempts others, with kube-scheduler's calls."""

from __future__ import annotations

import contextlib
from typing import Any

from support import extender
from support.clusters import container, gpus_of, node, pod
from support.fake_api_server import FakeApiServer
from vcuda_oci.model.allocation import GpuShare


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
