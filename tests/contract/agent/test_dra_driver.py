"""The agent's DRA driver with a fake kubelet and a fake API server, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from contract.agent.test_device_plugin import CORE, uuids
from support.cluster_api import KubeApi
from support.dra_claims import NODE, SPACE, claim, result
from support.fake_api_calls import merged
from support.fake_api_objects import CLAIMS, SLICES
from support.fake_api_server import status
from support.fake_dra_kubelet import DraKubelet
from support.fake_kubelet import Kubelet, until
from support.node_agent import Agent, AgentNode
from support.samples import GIB
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare


class DraNode:
    """A node with two software GPUs that offers them by DRA."""

    def __init__(self, node: AgentNode, **more: str) -> None:
        self.node = node
        node.configure(gpu_offer="dra", **more)
        self.folder = str(node.gpu.root.parent)
        # Names of sockets are long: a short folder.
        self.root = tempfile.mkdtemp(prefix="kubelet")
        node.kubelet.stop()
        node.kubelet = Kubelet(f"{self.root}/device-plugins")
        node.kubelet.start()
        self.kubelet = DraKubelet(self.root)
        self.cdi = f"{self.folder}/cdi"
        self.api = KubeApi()
        self.api.add({"metadata": {"name": NODE, "uid": "node-uid"}})

    def start(self, *more: str) -> Agent:
        words = ["--config", self.node.config, "--kubelet-dir", self.node.kubelet.folder]
        words += ["--kubeconfig", self.api.kubeconfig(f"{self.folder}/kubeconfig")]
        words += ["--node-name", NODE, "--cdi-dir", self.cdi]
        return Agent([self.node.program, *words, *more])

    @contextlib.contextmanager
    def agent(self) -> Iterator[Agent]:
        agent = self.start()
        try:
            agent.await_ready()
            yield agent
        finally:
            agent.end()

    def slices(self) -> dict[str, dict[str, Any]]:
        with self.api.lock:
            found: dict[str, dict[str, Any]] = json.loads(json.dumps(self.api.objects[SLICES]))
        return found

    def generation(self) -> int:
        (each,) = self.slices().values()
        return int(each["spec"]["pool"]["generation"])

    def devices(self) -> list[dict[str, Any]]:
        return [device for each in self.slices().values() for device in each["spec"]["devices"]]

    def uuids(self) -> list[str]:
        return [device["attributes"]["uuid"]["string"] for device in self.devices()]

    def allocate(self, uid: str, uuid: str, cores: str = "30") -> tuple[str, str, str]:
        """Allocate a claim; return it as the kubelet names it."""
        self.api.set(CLAIMS, f"{SPACE}/claim-{uid}", claim(uid, result(uuid, cores)))
        return SPACE, f"claim-{uid}", uid

    def status(self, uid: str) -> dict[str, Any]:
        with self.api.lock:
            found: dict[str, Any] = self.api.objects[CLAIMS][f"{SPACE}/claim-{uid}"]["status"]
        return found

    def held(self) -> list[str]:
        return sorted(name[:-5] for name in os.listdir(f"{self.node.state_dir}/allocations"))

    def hold(self, name: str, uuid: str) -> Allocation:
        """Write the record of a pod that the device plugin gave a share."""
        pod = {"namespace": SPACE, "name": name, "container": "main"}
        share = GpuShare(uuid, GIB, 30)
        held = Allocation(f"pod-{name}.main", [share], {}, "", [], [1, 1], time.time(), pod)
        with Ledger(self.node.state_dir) as ledger:
            ledger.record(held)
        return held

    def release(self, held: Allocation) -> None:
        with Ledger(self.node.state_dir) as ledger:
            ledger.remove(held.id)

    def tainted(self) -> list[str]:
        """The UUIDs of the devices that get no claim, and the taints' values."""
        return [
            f"{device['attributes']['uuid']['string']} {taint['value']}"
            for device in self.devices()
            for taint in device.get("taints", ())
        ]


@pytest.fixture
def dra(node: AgentNode) -> Iterator[DraNode]:
    made = DraNode(node)
    with made.api.running():
        yield made
    made.kubelet.close()
    shutil.rmtree(made.root)


def test_the_gpus_are_in_a_slice_and_not_at_the_device_plugin(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        info = dra.kubelet.register()
        assert (info.type, info.name) == ("DRAPlugin", "gpu.vcuda.io")
        assert list(info.supported_versions) == ["v1.DRAPlugin"]
        (each,) = dra.slices().values()
        assert each["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
        capacity = [device["capacity"]["memory"]["value"] for device in dra.devices()]
        assert capacity == ["16Gi", "16Gi"]
        assert dra.node.kubelet.registrations == []
    assert dra.kubelet.sockets() == []


def test_a_restarted_agent_writes_no_slice_and_keeps_the_claims(dra: DraNode) -> None:
    with dra.agent() as agent:
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        (device,) = dra.kubelet.prepare(mine)["a"].devices
        before = dra.slices()
        agent.kill()
    with dra.agent():
        dra.kubelet.register()
        answer = dra.kubelet.prepare(mine)["a"]
        assert (list(answer.devices), answer.error) == ([device], "")
        assert dra.slices() == before
        assert dra.kubelet.unprepare(mine)["a"].error == ""
        assert (dra.held(), os.listdir(dra.cdi)) == ([], [])


def test_a_killed_driver_comes_back_by_itself(dra: DraNode) -> None:
    with dra.agent() as agent:
        until(lambda: len(dra.devices()) == 2)
        first = agent.child("dra_process")
        os.kill(first, 9)
        until(lambda: agent.children("dra_process") not in ([], [first]))
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[1])
        assert dra.kubelet.prepare(mine)["a"].error == ""
        assert dra.generation() == 1


def test_the_answer_names_request_pool_device_and_cdi_device(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        (device,) = dra.kubelet.prepare(mine)["a"].devices
        assert list(device.request_names) == ["gpu"]
        assert (device.pool_name, device.device_name) == (NODE, dra.devices()[0]["name"])
        assert (list(device.cdi_device_ids), device.share_id) == (["vcuda.io/claim=a"], "5a3c")
        assert dra.held() == ["dra@a"]


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("no claim", "cannot be read: 404 "),
        ("another claim", "has the uid other, not a; "),
        ("no API", "cannot be read: 503 "),
        ("a path", "'../../pods/x' is not a name"),
    ],
)
def test_a_claim_that_cannot_be_trusted_is_refused(dra: DraNode, case: str, error: str) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        if case == "no claim":
            dra.api.delete(f"{SPACE}/claim-a", CLAIMS)
        elif case == "another claim":
            dra.api.set(CLAIMS, f"{SPACE}/claim-a", claim("other", result(dra.uuids()[0])))
        elif case == "no API":
            dra.api.before = lambda method, path, _: (
                status(503, "away") if "resourceclaims" in path else None
            )
        else:
            mine = (SPACE, "../../pods/x", "a")
        answer = dra.kubelet.prepare(mine)["a"]
        assert error in answer.error
        assert (list(answer.devices), dra.held()) == ([], [])


def test_claim_says_in_its_status_what_its_containers_got(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        uuid = dra.uuids()[0]
        mine = dra.allocate("a", uuid)
        assert dra.kubelet.prepare(mine)["a"].error == ""
        until(lambda: bool(dra.status("a").get("devices")))
        (device,) = dra.status("a")["devices"]
        (condition,) = device["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == (
            "Ready",
            "True",
            "Prepared",
        )
        assert condition["message"] == f"30 % of the time and 4096 MiB of {uuid} on node {NODE}"
        assert device["data"] == {
            "uuid": uuid,
            "cores": 30,
            "memoryBytes": 4 * GIB,
            "node": NODE,
        }
        (place,) = dra.status("a")["allocation"]["devices"]["results"]
        assert {key: device[key] for key in ("driver", "pool", "device", "shareID")} == {
            key: place[key] for key in ("driver", "pool", "device", "shareID")
        }
        # The kubelet repeats its call: nothing more is written.
        count = len([1 for method, path, _ in dra.api.requests if path.endswith("/status")])
        assert dra.kubelet.prepare(mine)["a"].error == ""
        other = dra.allocate("b", uuid)
        assert dra.kubelet.prepare(other)["b"].error == ""
        until(lambda: bool(dra.status("b").get("devices")))
        assert [path for _, path, _ in dra.api.requests if path.endswith("/status")][count:] == [
            f"/apis/resource.k8s.io/v1/namespaces/{SPACE}/resourceclaims/claim-b/status"
        ]


def test_status_that_cannot_be_written_delays_no_claim(dra: DraNode) -> None:
    dra.api.before = lambda method, path, _: status(403, "no") if path.endswith("/status") else None
    with dra.agent() as agent:
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        for uid in ("a", "b"):
            assert dra.kubelet.prepare(dra.allocate(uid, dra.uuids()[0]))[uid].error == ""
        line = f"vcuda-node-agent: status of claim {SPACE}/claim-a: 403 no"
        until(lambda: line in agent.log())
        assert dra.held() == ["dra@a", "dra@b"]


def test_one_refused_claim_does_not_stop_the_others(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        good = dra.allocate("a", dra.uuids()[0])
        answers = dra.kubelet.prepare((SPACE, "claim-b", "b"), good)
        assert (answers["a"].error, answers["b"].error != "") == ("", True)
        assert dra.held() == ["dra@a"]


def test_claim_that_the_node_authorizer_refuses_at_first_is_prepared_later(dra: DraNode) -> None:
    dra.api.relation_seconds = 1.5
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        refused = dra.kubelet.prepare(mine)["a"].error
        assert "no relationship found between node" in refused
        assert (dra.held(), os.path.isdir(dra.cdi) and os.listdir(dra.cdi)) == ([], False)
        until(lambda: dra.kubelet.prepare(mine)["a"].error == "")
        assert dra.held() == ["dra@a"]
        until(lambda: bool(dra.status("a").get("devices")))


def test_an_unhealthy_gpu_gets_a_taint_and_a_new_generation(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.node.order("fail", "--event", "0", "--xid", "79")
        until(lambda: "taints" in dra.devices()[0])
        assert dra.devices()[0]["taints"][0]["key"] == "gpu.vcuda.io/unhealthy"
        assert (dra.generation(), "taints" in dra.devices()[1]) == (2, False)


@pytest.mark.parametrize(("offer", "is_followed"), [("dra", False), ("plugin", True)])
def test_a_pod_with_a_resource_is_followed_unless_dra_gives_it(
    dra: DraNode, offer: str, is_followed: bool
) -> None:
    dra.node.configure(gpu_offer=offer, gpu_resource="nvidia.com/gpu")
    uid = dra.api.create("old", {"main": {"nvidia.com/gpu": 1}})
    with dra.agent():
        # The devices are offered after the pods are known.
        until(lambda: bool(dra.devices() or dra.node.kubelet.registrations))
        decisions = os.listdir(f"{dra.node.state_dir}/decisions")
        assert decisions == ([f"{uid}.json"] if is_followed else [])


def test_slices_that_another_removed_or_changed_come_back(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        (name,) = dra.slices()
        dra.api.delete(name, SLICES)
        until(lambda: len(dra.devices()) == 2)
        changed = dra.slices()[name]
        changed["spec"]["devices"] = changed["spec"]["devices"][:1]
        dra.api.set(SLICES, name, changed)
        until(lambda: len(dra.devices()) == 2)
        assert dra.generation() == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_slice_removed_before_its_writers_answer_came_is_written_again(
    dra: DraNode, method: str
) -> None:
    """The watch is faster than the answer, and tells of a removal that is newer than it."""
    late: list[str] = []

    async def remove(name: str) -> None:
        dra.api.delete(name, SLICES)
        late.append(name)
        await asyncio.sleep(0.5)

    def applied(called: str, path: str) -> Any:
        is_it = path.startswith(SLICES) and called == method and not late
        return remove(*dra.slices()) if is_it else None

    dra.api.applied = applied
    with dra.agent():
        if method == "PATCH":
            until(lambda: len(dra.devices()) == 2)
            (name,) = dra.slices()
            dra.api.set(SLICES, name, merged(dra.slices()[name], {"spec": {"devices": []}}))
        until(lambda: bool(late))
        until(lambda: len(dra.devices()) == 2, 10)


def test_slices_are_written_once_the_api_is_back(dra: DraNode) -> None:
    dra.api.refuse = 503
    with dra.agent():
        dra.kubelet.register()
        time.sleep(0.5)
        dra.api.refuse = 0
        until(lambda: len(dra.devices()) == 2)
        assert dra.generation() == 1


def test_next_agents_driver_answers_before_the_former_ends(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        info = dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        assert dra.kubelet.prepare(mine)["a"].error == ""
        before = dra.slices()
        agent = dra.start("--no-door", "--take-over")
        (name,) = set(dra.kubelet.wait_sockets(2)) - {"gpu.vcuda.io-reg.sock"}
        time.sleep(1)
        assert not any("may end now" in line for line in agent.log())  # the kubelet calls the other
        assert dra.kubelet.register(name).endpoint != info.endpoint
        until(lambda: any("may end now" in line for line in agent.log()))
        assert dra.kubelet.unprepare(mine)["a"].error == ""
        second = dra.allocate("b", dra.uuids()[0])
        assert dra.kubelet.prepare(second)["b"].error == ""
    try:
        agent.await_ready()
        assert dra.kubelet.sockets() == [name]
        assert dra.kubelet.prepare(second)["b"].error == ""
        assert (dra.slices(), dra.held()) == (before, ["dra@b"])
    finally:
        agent.end()
    assert dra.kubelet.sockets() == []


def test_kubelet_is_told_at_once_that_a_gpu_is_unhealthy_and_why(dra: DraNode) -> None:
    with dra.agent():
        dra.kubelet.register()
        until(lambda: len(dra.devices()) == 2)
        stream = dra.kubelet.watch_health()

        def told() -> dict[str, tuple[int, str]]:
            found = next(stream).devices
            assert {each.device.pool_name for each in found} == {NODE}
            assert {each.health_check_timeout_seconds for each in found} == {30}
            return {each.device.device_name: (each.health, each.message) for each in found}

        first, second = (uuid.lower() for uuid in dra.uuids())
        assert told() == {first: (1, ""), second: (1, "")}
        dra.node.order("fail", "--event", "0", "--xid", "79")
        assert told() == {first: (2, "Xid 79"), second: (1, "")}
        # A kubelet that was restarted: the former stream ends, and the new one has all.
        again = dra.kubelet.watch_health()
        assert {each.device.device_name for each in next(again).devices} == {first, second}
        assert list(stream) == []
        stream = again


def test_many_health_streams_hold_up_no_claim(dra: DraNode) -> None:
    with dra.agent():
        dra.kubelet.register()
        until(lambda: len(dra.devices()) == 2)
        streams = [dra.kubelet.watch_health() for _ in range(20)]
        mine = dra.allocate("a", dra.uuids()[0])
        assert dra.kubelet.prepare(mine)["a"].error == ""
        assert next(streams[-1]).devices


def test_gpu_with_a_pod_of_the_plugin_is_offered_by_dra_once_that_ends(dra: DraNode) -> None:
    first, _ = uuids(dra.node)
    held = dra.hold("old", first)
    with dra.agent() as agent:
        until(lambda: len(dra.devices()) == 2)
        assert dra.tainted() == [f"{first} its-shares-by-the-device-plugin-must-end-first"]
        dra.release(held)
        until(lambda: dra.tainted() == [])
        line = f"{first}: not offered: its shares by the device plugin must end first"
        assert [each for each in agent.log() if ": not offered: " in each] == [
            f"vcuda-node-agent: {line}"
        ]


def test_gpu_with_a_claim_is_offered_by_the_plugin_once_that_is_unprepared(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.kubelet.register()
        mine = dra.allocate("a", dra.uuids()[0])
        assert dra.kubelet.prepare(mine)["a"].error == ""
    dra.node.configure(gpu_offer="plugin")
    with dra.agent() as agent:
        # It answers the kubelet, which could not end the pod, and offers nothing by DRA.
        dra.kubelet.register()
        until(lambda: dra.slices() == {})
        until(lambda: len(dra.node.kubelet.healthy(CORE)) == 100)
        assert len(dra.node.kubelet.devices(CORE)) == 200
        assert dra.kubelet.unprepare(mine)["a"].error == ""
        until(lambda: len(dra.node.kubelet.healthy(CORE)) == 200)
        assert dra.held() == []
        until(lambda: dra.kubelet.sockets() == [], 60)
        until(lambda: agent.children("dra_process") == [])


def test_agent_that_offers_the_other_way_waits_for_the_formers_end(dra: DraNode) -> None:
    dra.node.configure(gpu_offer="plugin")
    with dra.agent():
        until(lambda: bool(dra.node.kubelet.healthy(CORE)))
        dra.node.configure(gpu_offer="dra")
        agent = dra.start("--no-door", "--take-over")
        until(lambda: any("may end now" in line for line in agent.log()))
        time.sleep(1)
        assert (dra.kubelet.sockets(), dra.slices()) == ([], {})
    try:
        agent.await_ready()
        until(lambda: len(dra.devices()) == 2)
        assert dra.kubelet.register().name == "gpu.vcuda.io"
    finally:
        agent.end()


def test_an_agent_without_dra_removes_the_sockets_of_a_killed_one(dra: DraNode) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(f"{dra.kubelet.root}/plugins_registry/gpu.vcuda.io-reg.sock")
    assert dra.kubelet.sockets() == ["gpu.vcuda.io-reg.sock"]
    dra.node.configure(gpu_offer="plugin")
    with dra.agent():
        until(lambda: dra.kubelet.sockets() == [])
        until(lambda: bool(dra.node.kubelet.registrations))


def test_dra_without_a_cluster_is_one_line(node: AgentNode) -> None:
    node.configure(gpu_offer="dra")
    agent = Agent([node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder])
    assert agent.process.wait(30) == 1
    (line,) = agent.log()
    assert line == (
        f"vcuda-node-agent: {node.config}: DRA needs the Kubernetes API; "
        'name a kubeconfig with --kubeconfig, or set gpu-offer = "plugin"'
    )
