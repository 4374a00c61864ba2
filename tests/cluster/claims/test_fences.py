"""Pods behind the fence that one line names, MIG or MPS: by the device plugin and by DRA."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.kubernetes import claims, deployments
from cluster.kubernetes.node import CORE, GPUS, Node
from cluster.kubernetes.reboot import reboot
from cluster.test_pods import total_bytes
from support.agent.claim_server import ClaimServer
from support.gpu.mig_node import H100
from support.processes import children_of
from support.product import MIB
from support.softgpu.mps_processes import daemons, kill_daemons
from vcuda_oci.host.host import load
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger import events, instance_records

BY_DRA = "cannot allocate all claims"
PREPARE_FAILED = "FailedPrepareDynamicResources"
# Two GPUs in turns or under MPS, and the places of H100's profiles.
DEVICES = 2 * 2 + 18
CREATES = "nvmlGpuInstanceCreateComputeInstance"
BUSY = ["vcuda-workload", "busy", "--kernel-us=1000", "--async=4", "--seconds=1000"]


@pytest.fixture(scope="module")
def fenced(started: Node) -> Iterator[Node]:
    """The node with three H100s, the third in MIG mode."""
    started.product.create(3, *H100, "--mig", "2=")
    yield started
    started.product.create(*GPUS)
    started.offer("plugin")
    started.wait(lambda: started.allocatable(CORE) == 200, "the GPUs of the other tests")


@pytest.fixture(scope="module", params=["plugin", "dra"])
def offered(fenced: Node, request: pytest.FixtureRequest) -> str:
    """How the node's GPUs are offered."""
    fenced.offer(request.param, {"mps-devices": "yes"})
    if request.param == "plugin":
        fenced.wait(lambda: fenced.allocatable(CORE) == 300, "the node's GPUs")
    else:
        fenced.wait(lambda: len(claims.devices(fenced)) == DEVICES, "the node's devices")
    return str(request.param)


@pytest.fixture
def serve(fenced: Node) -> Iterator[Callable[[], ClaimServer]]:
    """Starts the host's vcuda.service."""
    servers: list[ClaimServer] = []

    def start() -> ClaimServer:
        servers.append(ClaimServer(fenced.host, fenced.product, state_dir(fenced)))
        return servers[-1]

    yield start
    servers[-1].close()
    kill_daemons(state_dir(fenced))


def state_dir(node: Node) -> str:
    return node.product.state_dir(node.engine)


def run(
    node: Node, offered: str, name: str, fence: str, core: int, gib: int, *command: str
) -> None:
    if offered == "dra":
        claims.run(node, name, core, f"{gib}Gi", list(command), fence=fence.replace("turns", ""))
    else:
        node.apply(fenced_pod(node, name, fence, core, gib, *command))


def fenced_pod(
    node: Node, name: str, fence: str, core: int, gib: int, *command: str
) -> dict[str, Any]:
    """By the device plugin."""
    pod = node.pod(name, core, 4 * gib, list(command))
    pod["metadata"]["annotations"] = {"vcuda.io/isolation": fence}
    return pod


def wait_refused(node: Node, offered: str, name: str, by_plugin: str) -> None:
    refusal = by_plugin if offered == "plugin" else BY_DRA
    node.wait(
        lambda: refusal in str(node.events(name, "FailedScheduling")),
        f"the refusal of {name}",
    )


def instances(node: Node) -> list[str]:
    """The names of the profiles of all GPU instances."""
    facts = load(node.product.driver_root, state_dir(node) + "/host.json")
    gpu = next(each for each in facts.gpus if each.divided)
    with Mig(facts.library) as driver:
        names = {one.id: one.name for one in driver.layout(gpu.uuid).profiles}
        return sorted(names[one.profile] for one in driver.instances(gpu.uuid))


def wait_no_instance(node: Node) -> None:
    def left() -> list[object]:
        # An instance ends before its record.
        return [*instances(node), *instance_records.read(state_dir(node))]

    node.wait(lambda: left() == [], "the end of the GPU instances")


def test_pods_get_the_smallest_instance_while_a_place_is_left(node: Node, offered: str) -> None:
    for name, core, gib in (("small", 10, 4), ("deep", 10, 15), ("wide", 30, 4)):
        run(node, offered, name, "mig", core, gib)
        node.wait_running(name)
    assert instances(node) == ["1g.10gb", "1g.20gb", "3g.40gb"]
    assert total_bytes(node, "small") == [9984 * MIB]
    run(node, offered, "late", "mig", 30, 4)
    wait_refused(node, offered, "late", "the largest that fits is none")
    node.delete("wide")
    node.wait_running("late")
    assert instances(node) == ["1g.10gb", "1g.20gb", "3g.40gb"]
    for name in ("small", "deep", "late"):
        node.delete(name)
    wait_no_instance(node)


def test_kill_while_an_instance_is_made_and_ended_leaves_none(
    node: Node, offered: str, serve: Callable[[], ClaimServer]
) -> None:
    server = serve()
    node.product.order("fail", "--call", CREATES, "--hang")
    try:
        run(node, offered, "first", "mig", 10, 4)
        node.wait(lambda: instances(node) == ["1g.10gb"], "the half of an instance")
        # What creates it: the agent for a claim, else the host's service.
        if offered == "dra":
            node.kill_agent()
        else:
            for pid in (server.pid, *server.workers()):
                os.kill(pid, signal.SIGKILL)
            server.nsenter.wait(30)
            serve()
    finally:
        node.product.order("heal")
    node.wait_running("first")
    assert instances(node) == ["1g.10gb"]
    assert len(instance_records.read(state_dir(node))) == 1
    node.signal_agent(signal.SIGKILL)
    node.delete("first")
    wait_no_instance(node)
    node.wait_agent_ready()


def test_pods_under_mps_share_unequally_and_never_beside_turns(
    node: Node, offered: str, serve: Callable[[], ClaimServer]
) -> None:
    serve()
    for name, core in (("small", 30), ("large", 50)):
        run(node, offered, name, "mps", core, 4, *BUSY)
        node.wait_running(name)
    gpus = node.gpus_held()
    assert gpus["small"] == gpus["large"]
    node.wait(
        lambda: [p["kernels_finished"] > 50 for p in node.product.processes()] == [True, True],
        "the work of both",
    )
    parts = sorted(one["whole_ns"] / one["held_ns"] for one in node.product.processes())
    assert parts == [pytest.approx(0.3, abs=0.02), pytest.approx(0.5, abs=0.02)]
    run(node, offered, "turns", "turns", 90, 4)
    if offered == "dra" and node.cluster.minor < 36:
        # kube-scheduler counts nothing that shared devices consume, so the node refuses.
        node.wait(
            lambda: "its containers are under MPS" in str(node.events("turns", PREPARE_FAILED)),
            "the node's refusal",
        )
        return
    node.wait_running("turns")
    run(node, offered, "late", "turns", 20, 4)
    wait_refused(node, offered, "late", "largest free share is")
    run(node, offered, "third", "mps", 20, 4)
    node.wait_running("third")
    gpus = node.gpus_held()
    assert gpus["third"] == gpus["large"] != gpus["turns"]
    for name in ("small", "large", "third", "turns"):
        node.delete(name)
    node.wait(lambda: daemons(state_dir(node)) == [], "the end of the MPS daemon")


def test_crashed_mps_server_is_reported_for_each_pod_and_new_ones_run(
    node: Node, offered: str, serve: Callable[[], ClaimServer]
) -> None:
    serve()
    for name in ("first", "second"):
        run(node, offered, name, "mps", 30, 4, *BUSY)
        node.wait_running(name)
    before = len(list(events.read(state_dir(node))))
    killed = kill_daemons(state_dir(node))

    def reported() -> set[str]:
        found = list(events.read(state_dir(node)))[before:]
        return {one["pod"].split("/")[1] for one in found if one["kind"] == events.MPS_ENDED}

    node.wait(lambda: reported() == {"first", "second"}, "the reports")
    if offered == "plugin":
        node.wait(
            lambda: all(node.events(name, "GpuMpsEnded") for name in ("first", "second")),
            "the Events of the pods",
        )
    else:  # their claims have the mounts of the former server
        for name in ("first", "second"):
            node.delete(name)
            run(node, offered, name, "mps", 30, 4, *BUSY)
    node.wait(
        lambda: [p["kernels_finished"] > 50 for p in node.product.processes()] == [True, True],
        "the work of both after the crash",
    )
    assert set(daemons(state_dir(node))).isdisjoint(killed)


def test_deployment_under_mps_runs_again_after_a_reboot(
    node: Node, offered: str, serve: Callable[[], ClaimServer]
) -> None:
    server = serve()
    if offered == "dra":
        node.apply(claims.template("rebooted", 30, "4Gi", fence="mps"))
        pod = claims.pod("train", "rebooted", BUSY, "Always")
    else:
        pod = fenced_pod(node, "train", "mps", 30, 4, *BUSY)
    with deployments.running(node, pod, 2):
        for pid in (server.pid, *children_of(server.pid)):
            with contextlib.suppress(ProcessLookupError):  # the turn keeper ends with the server
                os.kill(pid, signal.SIGKILL)
        server.nsenter.wait(30)
        former = kill_daemons(state_dir(node))
        reboot(node)
        serve()
        node.wait(
            lambda: [p["kernels_finished"] > 50 for p in node.product.processes()] == [True, True],
            "the work of both after the reboot",
        )
        assert set(daemons(state_dir(node))).isdisjoint(former)
        assert list(node.held().values()) == [(30, 4096 * MIB)] * 2
