"""HAMi's resources: the kubelet counts GPUs, the pod's object says how much of each, and no
container
that asks for a part gets a whole one because that was not known."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.engines.cri import Cri, Pod
from support.kubelet.cluster_node import ClusterNode
from support.kubelet.watched_pods import NODE
from support.product import Product
from support.waiting import until
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import settings_file
from vcuda_plugin.extender.model.place import Placed, place
from vcuda_plugin.extender.model.pod_request import ask_of
from vcuda_plugin.kube import node_gpus

GPU = "nvidia.com/gpu"
MEMORY, PERCENT, CORES = GPU + "mem", GPU + "mem-percentage", GPU + "cores"
MIB = 1 << 20
THIRD = {GPU: 1, MEMORY: 3000, CORES: 30}
SETTINGS = settings_file.parse(f'gpu-resource = "{GPU}"', "config.toml")


class HamiNode(ClusterNode):
    """Each GPU counts ten times with the kubelet."""

    def schedule_as_extender(self, name: str, **containers: dict[str, int]) -> str:
        """As the extender's own code decides on an empty node; the pod's UID."""
        uid = self.api.create(name, containers)
        ask = ask_of(self.api.pods[uid], SETTINGS)
        published = node_gpus.parse(self.api.nodes[NODE]["vcuda.io/node-gpus"])
        assert ask is not None
        placed = place(published.gpus, [], ask, Rules())
        assert isinstance(placed, Placed)
        self.decide(uid, said(Decision(placed.containers).dump()))
        return uid

    def known(self, name: str, **containers: dict[str, int]) -> str:
        """Create a pod without a decision; return its UID once the node knows it."""
        uid = self.api.create(name, containers)
        until(lambda: uid in self.decision_uids())
        return uid

    def has(self, pod: Pod, name: str = "main") -> list[tuple[int, int, int, str]]:
        """(GPU's index, percent, MiB, policy) of each share of a container that runs."""
        records = {
            (record["pod"]["uid"], record["pod"]["container"]): record
            for record in self.product.allocations(self.cri)
        }
        return [
            (
                self.uuids.index(share["uuid"]),
                share["core_percent"],
                share["memory_bytes"] // MIB,
                share["policy"],
            )
            for share in records[pod.uid, name]["shares"]
        ]

    def runs(self, container: str, uid: str, name: str = "main", gpus: int = 1) -> Pod:
        pod = self.run_pod(container, uid)
        self.start(pod, name, asks={GPU: gpus})
        return pod


def said(decision: str) -> dict[str, str]:
    return {"vcuda.io/placement-decision": decision, "tencent.com/predicate-node": NODE}


@pytest.fixture
def hami(cri: Cri, product: Product, tmp_path: Path) -> Iterator[HamiNode]:
    with product.on(cri, gpu_resource=GPU, gpu_split="10"):
        node = HamiNode(cri, product, str(tmp_path))
        try:
            node.start_agent()
            until(lambda: bool(node.kubelet.healthy(GPU)))
            yield node
        finally:
            node.close()


def test_containers_get_their_pods_amount_of_the_decided_gpu(
    hami: HamiNode, container: str
) -> None:
    assert len(hami.kubelet.healthy(GPU)) == 20
    uid = hami.schedule_as_extender(container, main=THIRD, other={GPU: 1, PERCENT: 50})
    pod = hami.run_pod(container, uid)
    hami.start(pod, asks={GPU: 1})
    hami.start(pod, "other", asks={GPU: 1})
    assert hami.has(pod) == [(0, 30, 3000, "fixed")]
    # Any compute will do for it: 1 % is its own, the rest what others leave.
    assert hami.has(pod, "other") == [(0, 1, 8192, "elastic")]
    second = hami.schedule_as_extender(container + "-2", main=THIRD)
    inside = hami.run_pod(container + "-2", second)
    assert hami.seen(inside, asks={GPU: 1}) == ["nvidia0"]
    assert f'"total_bytes": {3000 * MIB}, ' in hami.cri.output(inside, "main")[0]


def test_several_parts_are_on_different_gpus_and_whole_ones_unshared(
    hami: HamiNode, container: str
) -> None:
    uid = hami.schedule_as_extender(container, main={GPU: 2, MEMORY: 1000, CORES: 20})
    pod = hami.runs(container, uid, gpus=2)
    assert hami.has(pod) == [(0, 20, 1000, "fixed"), (1, 20, 1000, "fixed")]
    hami.remove_pod(pod)
    whole = hami.runs(container + "-2", hami.known(container + "-2", main={GPU: 1}))
    (first,) = hami.has(whole)
    assert first[:2] == (0, 100)
    # This one has no decision: the node places by the same rules, beside the whole one.
    part = hami.runs(container + "-3", hami.known(container + "-3", main=THIRD))
    assert hami.has(part) == [(1, 30, 3000, "fixed")]


def test_without_the_pod_watch_no_container_is_given_a_gpu(hami: HamiNode, container: str) -> None:
    uid = hami.api.create(container, {"main": THIRD}, node="elsewhere")
    pod = hami.run_pod(container, uid)
    unknown = f"pod default/{container}: the node agent does not know this pod yet"
    began = time.monotonic()
    assert hami.refusal(pod, asks={GPU: 1}).startswith(unknown)
    assert time.monotonic() - began > 1  # the agent may be behind the kubelet
    # Nor without an agent, or after the agent and its decision files were removed.
    shutil.rmtree(hami.state_dir + "/decisions")
    assert hami.refusal(pod, asks={GPU: 1}) == (
        f"pod default/{container}: GPU amount of container main is unknown: "
        "the agent is not watching this pod; "
        "have vcuda-node-agent follow the pods: --kubeconfig, or in a pod of its own"
    )
    assert hami.product.allocations(hami.cri) == []


def test_decision_for_other_amounts_or_forged_is_refused(hami: HamiNode, container: str) -> None:
    uid = hami.schedule_as_extender(container, main=THIRD)
    decision = json.loads(
        hami.api.pods[uid]["metadata"]["annotations"]["vcuda.io/placement-decision"]
    )
    # A user with write access to the pod's annotations raises its amounts.
    share = decision["containers"]["main"][0]
    share["core_percent"], share["memory_bytes"] = 100, 16 << 30
    decision["amounts"] = {"main": {"parts": [[100, None, None]], "any_core": False}}
    hami.decide(uid, said(json.dumps(decision)))
    pod = hami.run_pod(container, uid)
    assert hami.refusal(pod, asks={GPU: 1}) == (
        f"decision for pod default/{container}: 100 % was decided; 30 % is asked; "
        "delete the pod if it stays so, and it is scheduled anew"
    )
    # Nor is a resource that the kubelet counts and the pod's object lacks.
    assert hami.refusal(pod, asks={GPU: 1}, name="stranger").startswith(
        f"pod default/{container}: GPU amount of container stranger is unknown"
    )
    assert hami.product.allocations(hami.cri) == []


def test_restarted_container_retains_its_part_whatever_its_pod_says_now(
    hami: HamiNode, container: str
) -> None:
    uid = hami.known(container, main=THIRD)
    pod = hami.run_pod(container, uid)
    assert hami.seen(pod, asks={GPU: 1}) == ["nvidia0"]
    hami.api.delete(uid)
    until(lambda: hami.decision_uids() == set())
    hami.start(pod, asks={GPU: 1})
    assert hami.has(pod) == [(0, 30, 3000, "fixed")]


def test_where_decisions_are_off_the_pods_amounts_count_all_the_same(
    hami: HamiNode, container: str
) -> None:
    hami.product.configure(hami.cri, gpu_resource=GPU, gpu_split="10", decisions="off")
    uid = hami.schedule_as_extender(container, main=THIRD)
    decided = hami.api.pods[uid]["metadata"]["annotations"]["vcuda.io/placement-decision"]
    shares = json.loads(decided)
    shares["containers"]["main"][0]["uuid"] = hami.uuids[1]
    hami.decide(uid, said(json.dumps(shares)))
    assert hami.has(hami.runs(container, uid)) == [(0, 30, 3000, "fixed")]
