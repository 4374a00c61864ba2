"""A pod's containers get the scheduler's decision, whichever program restarts."""

from __future__ import annotations

import os
import shutil
import time
from concurrent import futures

import grpc  # type: ignore[import-untyped]

from support.engines.cri import Pod
from support.kubelet.cluster_node import ASKS, ClusterNode
from support.kubelet.watched_pods import CORE, MEMORY, decision_annotations
from support.product import MEMORY_UNIT
from support.waiting import until

STATIC = "0123456789abcdef0123456789abcdef"


def test_init_container_sidecar_and_two_containers_have_what_was_decided_for_each(
    cluster_node: ClusterNode, container: str
) -> None:
    large = {CORE: 80, MEMORY: 4}
    annotations = cluster_node.decision_annotations(proxy=0, first=1, second=0)
    uid = cluster_node.schedule(
        container, annotations, "first", "second", init={"init": large}, sidecars={"proxy": large}
    )
    pod = cluster_node.run_pod(container, uid)
    cluster_node.start(pod, "proxy")
    # It has no decision; only the second GPU has as much.
    assert cluster_node.seen(pod, "init", asks=large) == ["nvidia1"]
    # What it had is free for the others once it has ended: the kubelet counts it so as well.
    assert cluster_node.seen(pod, "first", asks=ASKS) == ["nvidia1"]
    cluster_node.start(pod, "second")
    assert cluster_node.held() == {
        f"{container}.proxy": (0, 30, "fixed"),
        f"{container}.first": (1, 30, "fixed"),
        f"{container}.second": (0, 30, "fixed"),
    }


def test_a_static_pod_has_its_named_policy_and_is_placed_by_the_node(
    cluster_node: ClusterNode, container: str
) -> None:
    annotations = {**cluster_node.decision_annotations(main=1), "vcuda.io/policy": "best-effort"}
    mirror = {"kubernetes.io/config.mirror": STATIC, **annotations}
    cluster_node.schedule(f"{container}-node-1", mirror)
    assert cluster_node.decision_uids() == {STATIC}
    cluster_node.start(cluster_node.run_pod(container, STATIC))
    assert cluster_node.held() == {f"{container}.main": (0, 30, "best-effort")}


def test_what_the_mounts_ask_for_is_placed_as_decided_too(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(
        container,
        {**cluster_node.decision_annotations(main=1), "sharedgpu/gpu_limit": "0.6"},
    )
    cluster_node.start(cluster_node.run_pod(container, uid), annotations=False)
    assert cluster_node.held() == {f"{container}.main": (1, 30, "elastic")}
    (record,) = cluster_node.product.allocations(cluster_node.cri)
    assert record["shares"][0]["core_ceiling_percent"] == 60


def test_a_pod_deleted_by_force_leaves_neither_record_nor_share(
    cluster_node: ClusterNode, container: str
) -> None:
    whole = {CORE: 100}
    uid = cluster_node.schedule(container, cluster_node.decision_annotations(main=1))
    pod = cluster_node.run_pod(container, uid)
    cluster_node.start(pod)
    cluster_node.api.delete(uid)
    until(lambda: cluster_node.decision_uids() == set())
    cluster_node.remove_pod(pod)
    cluster_node.kubelet.forget(uid)
    # Both GPUs are free again for whole requests.
    other = cluster_node.run_pod(
        container + "-2", cluster_node.api.create(container + "-2", {"main": whole})
    )
    cluster_node.start(other, asks={CORE: 200})
    assert len(cluster_node.product.allocations(cluster_node.cri)) == 1


def test_earlier_decisions_hold_during_an_api_outage(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(container, cluster_node.decision_annotations(main=1))
    cluster_node.api.stop()
    cluster_node.start(cluster_node.run_pod(container, uid))
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}
    # An agent restarted meanwhile has the decision too.
    cluster_node.end_agent()
    cluster_node.start_agent()
    assert cluster_node.decision_uids() == {uid}


def test_pod_bound_during_an_api_outage_gets_the_decided_gpu(
    cluster_node: ClusterNode, container: str
) -> None:
    cluster_node.api.stop()
    uid = cluster_node.api.create(
        container, {"main": ASKS}, annotations=cluster_node.decision_annotations(main=1)
    )
    cluster_node.api.forget()  # as after a minute: the watch's version is too old, 410
    pod = cluster_node.run_pod(container, uid)
    with futures.ThreadPoolExecutor(1) as kubelet:
        started = kubelet.submit(_start_as_the_kubelet_retries, cluster_node, pod, "main")
        time.sleep(3)  # longer than a worker of the claim socket waits
        assert (started.done(), cluster_node.held()) == (False, {})
        cluster_node.api.start()
        started.result()
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}


def test_pod_that_the_watch_has_not_brought_is_looked_up_by_itself(
    cluster_node: ClusterNode, container: str
) -> None:
    cluster_node.api.wake = lambda: None  # type: ignore[method-assign]  # watches learn nothing
    uid = cluster_node.api.create(
        container, {"main": ASKS}, annotations=cluster_node.decision_annotations(main=1)
    )
    pod = cluster_node.run_pod(container, uid)
    _start_as_the_kubelet_retries(cluster_node, pod, "main")
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}


def _start_as_the_kubelet_retries(cluster_node: ClusterNode, pod: Pod, name: str) -> None:
    def starts() -> bool:
        try:
            cluster_node.start(pod, name)
        except grpc.RpcError:
            return False
        return True

    until(starts)


def test_without_an_agent_alive_containers_have_what_was_decided(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(
        container, cluster_node.decision_annotations(main=1, other=0), "main", "other"
    )
    until(lambda: cluster_node.decision_uids() == {uid})
    admitted = [
        cluster_node.kubelet.admit(uid, name, {CORE: 30, MEMORY: 4}) for name in ("main", "other")
    ]
    assert cluster_node.agent is not None
    children = cluster_node.agent.children()
    cluster_node.agent.kill()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))
    pod = cluster_node.run_pod(container, uid)
    for name, answer in zip(("main", "other"), admitted, strict=True):
        cluster_node.cri.start_container(
            pod, ["sleep", "100"], name=name, annotations=answer.annotations, mounts=answer.mounts
        )
    assert {key: gpu for key, (gpu, _, _) in cluster_node.held().items()} == {
        f"{container}.main": 1,
        f"{container}.other": 0,
    }


def test_restarted_container_retains_its_share_despite_a_new_decision(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(container, cluster_node.decision_annotations(main=1))
    pod = cluster_node.run_pod(container, uid)
    assert cluster_node.seen(pod) == ["nvidia1"]
    cluster_node.decide(
        uid, {**cluster_node.decision_annotations(main=0), "vcuda.io/policy": "nonsense"}
    )
    assert cluster_node.seen(pod) == ["nvidia1"]
    # Nor when the kubelet restarts and calls the device plugin again.
    cluster_node.kubelet.stop()
    cluster_node.kubelet.start()
    until(
        lambda: (
            bool(cluster_node.kubelet.healthy(CORE)) and bool(cluster_node.kubelet.healthy(MEMORY))
        )
    )
    assert cluster_node.seen(pod) == ["nvidia1"]
    # Nor when the pod's object is deleted before the pod has ended.
    cluster_node.api.delete(uid)
    until(lambda: cluster_node.decision_uids() == set())
    assert cluster_node.seen(pod) == ["nvidia1"]
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}


def test_an_author_who_rewrites_a_decision_takes_no_other_pods_gpu(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(container, cluster_node.decision_annotations(main=0))
    cluster_node.api.annotate(
        uid, **cluster_node.decision_annotations(main=1), **{"vcuda.io/policy": "best-effort"}
    )
    large = {CORE: 80, MEMORY: 4}
    share = (cluster_node.uuids[1], 80, ASKS[MEMORY] * MEMORY_UNIT)
    other = cluster_node.api.create(
        f"{container}-2", {"main": large}, annotations=decision_annotations(main=share)
    )
    until(
        lambda: cluster_node.decision_uids() == {uid, other}
    )  # so the agent has seen the new annotations too
    cluster_node.start(cluster_node.run_pod(container, uid))
    cluster_node.start(cluster_node.run_pod(f"{container}-2", other), asks=large)
    assert cluster_node.held() == {
        f"{container}.main": (0, 30, "fixed"),
        f"{container}-2.main": (1, 80, "fixed"),
    }


def test_restarted_engine_starts_the_decided_share(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(
        container, cluster_node.decision_annotations(main=1, other=0), "main", "other"
    )
    pod = cluster_node.run_pod(container, uid)
    cluster_node.start(pod)
    cluster_node.cri.restart()
    cluster_node.start(pod, "other")
    assert {key: gpu for key, (gpu, _, _) in cluster_node.held().items()} == {
        f"{container}.main": 1,
        f"{container}.other": 0,
    }


def test_after_a_reboot_pods_are_placed_as_decided(
    cluster_node: ClusterNode, container: str
) -> None:
    uid = cluster_node.schedule(container, cluster_node.decision_annotations(main=1))
    pod = cluster_node.run_pod(container, uid)
    cluster_node.start(pod)
    cluster_node.remove_pod(pod)
    cluster_node.end_agent()
    cluster_node.kubelet.stop()
    shutil.rmtree(cluster_node.state_dir)
    cluster_node.kubelet.start()
    # The kubelet admits no pod before the agent is back, and it offers nothing before it knows.
    cluster_node.start_agent()
    assert cluster_node.decision_uids() == {uid}
    cluster_node.start(cluster_node.run_pod(container, uid))
    assert cluster_node.held() == {f"{container}.main": (1, 30, "fixed")}
