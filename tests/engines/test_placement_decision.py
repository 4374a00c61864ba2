"""What a scheduler decides is what the containers of a pod get, whichever program restarts."""

from __future__ import annotations

import os
import shutil
import time
from concurrent import futures

import grpc  # type: ignore[import-untyped]

from support.cluster_node import ASKS, ClusterNode
from support.engines.cri import Pod
from support.fake_kubelet import until
from support.product import MEMORY_UNIT
from support.watched_pods import CORE, MEMORY, decided

STATIC = "0123456789abcdef0123456789abcdef"


def test_init_container_sidecar_and_two_containers_have_what_was_decided_for_each(
    handoff: ClusterNode, container: str
) -> None:
    large = {CORE: 80, MEMORY: 4}
    annotations = handoff.decided(proxy=0, first=1, second=0)
    uid = handoff.schedule(
        container, annotations, "first", "second", init={"init": large}, sidecars={"proxy": large}
    )
    pod = handoff.run_pod(container, uid)
    handoff.start(pod, "proxy")
    # It has no decision; only the second GPU has as much.
    assert handoff.seen(pod, "init", asks=large) == ["nvidia1"]
    # What it had is free for the others once it has ended: the kubelet counts it so as well.
    assert handoff.seen(pod, "first", asks=ASKS) == ["nvidia1"]
    handoff.start(pod, "second")
    assert handoff.held() == {
        f"{container}.proxy": (0, 30, "fixed"),
        f"{container}.first": (1, 30, "fixed"),
        f"{container}.second": (0, 30, "fixed"),
    }


def test_a_static_pod_has_the_policy_that_it_names_and_a_place_of_the_nodes_choice(
    handoff: ClusterNode, container: str
) -> None:
    annotations = {**handoff.decided(main=1), "vcuda.io/policy": "best-effort"}
    mirror = {"kubernetes.io/config.mirror": STATIC, **annotations}
    handoff.schedule(f"{container}-node-1", mirror)
    assert handoff.kept() == {STATIC}
    handoff.start(handoff.run_pod(container, STATIC))
    assert handoff.held() == {f"{container}.main": (0, 30, "best-effort")}


def test_what_the_mounts_ask_for_is_placed_as_decided_too(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(
        container, {**handoff.decided(main=1), "tencent.com/vcuda-core-limit": "60"}
    )
    handoff.start(handoff.run_pod(container, uid), annotations=False)
    assert handoff.held() == {f"{container}.main": (1, 30, "elastic")}


def test_a_pod_deleted_by_force_leaves_neither_record_nor_share(
    handoff: ClusterNode, container: str
) -> None:
    whole = {CORE: 100}
    uid = handoff.schedule(container, handoff.decided(main=1))
    pod = handoff.run_pod(container, uid)
    handoff.start(pod)
    handoff.api.delete(uid)
    until(lambda: handoff.kept() == set())
    handoff.remove_pod(pod)
    handoff.kubelet.forget(uid)
    # Both GPUs are free again for whole requests.
    other = handoff.run_pod(container + "-2", handoff.api.create(container + "-2", {"main": whole}))
    handoff.start(other, asks={CORE: 200})
    assert len(handoff.product.allocations(handoff.cri)) == 1


def test_while_the_api_is_away_what_was_decided_before_holds(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(container, handoff.decided(main=1))
    handoff.api.stop()
    handoff.start(handoff.run_pod(container, uid))
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}
    # Nor does an agent forget that starts meanwhile.
    handoff.end_agent()
    handoff.start_agent()
    assert handoff.kept() == {uid}


def test_pod_bound_while_the_api_is_away_waits_and_gets_the_decided_gpu(
    handoff: ClusterNode, container: str
) -> None:
    handoff.api.stop()
    uid = handoff.api.create(container, {"main": ASKS}, annotations=handoff.decided(main=1))
    handoff.api.forget()  # as after a minute: the watch's version is too old, 410
    pod = handoff.run_pod(container, uid)
    with futures.ThreadPoolExecutor(1) as kubelet:
        started = kubelet.submit(_start_as_the_kubelet_retries, handoff, pod, "main")
        time.sleep(3)  # longer than a worker of the claim socket waits
        assert (started.done(), handoff.held()) == (False, {})
        handoff.api.start()
        started.result()
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}


def test_pod_that_the_watch_has_not_brought_is_looked_up_by_itself(
    handoff: ClusterNode, container: str
) -> None:
    handoff.api.wake = lambda: None  # type: ignore[method-assign]  # watches learn nothing
    uid = handoff.api.create(container, {"main": ASKS}, annotations=handoff.decided(main=1))
    pod = handoff.run_pod(container, uid)
    _start_as_the_kubelet_retries(handoff, pod, "main")
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}


def _start_as_the_kubelet_retries(handoff: ClusterNode, pod: Pod, name: str) -> None:
    def starts() -> bool:
        try:
            handoff.start(pod, name)
        except grpc.RpcError:
            return False
        return True

    until(starts)


def test_without_an_agent_alive_containers_have_what_was_decided(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(container, handoff.decided(main=1, other=0), "main", "other")
    until(lambda: handoff.kept() == {uid})
    admitted = [
        handoff.kubelet.admit(uid, name, {CORE: 30, MEMORY: 4}) for name in ("main", "other")
    ]
    assert handoff.agent is not None
    children = handoff.agent.children()
    handoff.agent.kill()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))
    pod = handoff.run_pod(container, uid)
    for name, answer in zip(("main", "other"), admitted, strict=True):
        handoff.cri.start_container(
            pod, ["sleep", "100"], name=name, annotations=answer.annotations, mounts=answer.mounts
        )
    assert {key: gpu for key, (gpu, _, _) in handoff.held().items()} == {
        f"{container}.main": 1,
        f"{container}.other": 0,
    }


def test_a_container_that_is_restarted_keeps_what_it_had_whatever_is_decided_since(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(container, handoff.decided(main=1))
    pod = handoff.run_pod(container, uid)
    assert handoff.seen(pod) == ["nvidia1"]
    handoff.decide(uid, {**handoff.decided(main=0), "vcuda.io/policy": "nonsense"})
    assert handoff.seen(pod) == ["nvidia1"]
    # Nor when the kubelet starts anew, and with it the device plugin's answers.
    handoff.kubelet.stop()
    handoff.kubelet.start()
    until(lambda: bool(handoff.kubelet.healthy(CORE)) and bool(handoff.kubelet.healthy(MEMORY)))
    assert handoff.seen(pod) == ["nvidia1"]
    # Nor when the pod's object is gone while the pod itself still ends.
    handoff.api.delete(uid)
    until(lambda: handoff.kept() == set())
    assert handoff.seen(pod) == ["nvidia1"]
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}


def test_an_author_who_rewrites_a_decision_takes_no_other_pods_gpu(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(container, handoff.decided(main=0))
    handoff.api.annotate(uid, **handoff.decided(main=1), **{"vcuda.io/policy": "best-effort"})
    large = {CORE: 80, MEMORY: 4}
    share = (handoff.uuids[1], 80, ASKS[MEMORY] * MEMORY_UNIT)
    other = handoff.api.create(f"{container}-2", {"main": large}, annotations=decided(main=share))
    until(lambda: handoff.kept() == {uid, other})  # so the agent has seen the new annotations too
    handoff.start(handoff.run_pod(container, uid))
    handoff.start(handoff.run_pod(f"{container}-2", other), asks=large)
    assert handoff.held() == {
        f"{container}.main": (0, 30, "fixed"),
        f"{container}-2.main": (1, 80, "fixed"),
    }


def test_an_engine_that_is_killed_and_back_starts_what_was_decided(
    handoff: ClusterNode, container: str
) -> None:
    uid = handoff.schedule(container, handoff.decided(main=1, other=0), "main", "other")
    pod = handoff.run_pod(container, uid)
    handoff.start(pod)
    handoff.cri.restart()
    handoff.start(pod, "other")
    assert {key: gpu for key, (gpu, _, _) in handoff.held().items()} == {
        f"{container}.main": 1,
        f"{container}.other": 0,
    }


def test_after_a_reboot_pods_are_placed_as_decided(handoff: ClusterNode, container: str) -> None:
    uid = handoff.schedule(container, handoff.decided(main=1))
    pod = handoff.run_pod(container, uid)
    handoff.start(pod)
    handoff.remove_pod(pod)
    handoff.end_agent()
    handoff.kubelet.stop()
    shutil.rmtree(handoff.state_dir)
    handoff.kubelet.start()
    # The kubelet admits no pod before the agent is back, and it offers nothing before it knows.
    handoff.start_agent()
    assert handoff.kept() == {uid}
    handoff.start(handoff.run_pod(container, uid))
    assert handoff.held() == {f"{container}.main": (1, 30, "fixed")}
