"""The agent continues through restarts, refusals and hangs of the kubelet, and the reverse."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from contract.agent.test_device_plugin import CORE, MEMORY, allocate, offered, uuids
from support.agent.node_agent import AgentNode
from support.api_server.cluster_api import KubeApi
from support.kubelet.fake_kubelet import Kubelet, api, services
from support.waiting import until
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.pages.limits_in_place import Turn
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.kubelet import registration, resources
from vcuda_plugin.agent.kubelet.device_plugin import DevicePlugin

BOTH = {CORE: 30, MEMORY: 20}


def test_restarted_kubelet_gets_a_registration_and_retains_its_allocations(
    node: AgentNode,
) -> None:
    with node.agent():
        offered(node, CORE, MEMORY)
        admitted, before = node.kubelet.admit("a", "main", BOTH), node.kubelet.checkpoint()
        devices = {resource: node.kubelet.devices(resource) for resource in BOTH}
        node.kubelet.stop()
        # It forgets which plugins were registered and removes the agent's sockets; its
        # checkpoint stays.
        again = Kubelet(node.kubelet.folder, seed=1)
        again.start()
        node.kubelet = again
        offered(node, CORE, MEMORY)
        assert {resource: again.devices(resource) for resource in BOTH} == devices
        assert again.admit("a", "main", BOTH) == admitted
        assert again.checkpoint() == before
        assert again.admit("b", "main", BOTH) == admitted
        assert again.registrations.count(CORE) == again.registrations.count(MEMORY) == 1


def test_killed_agent_restarts_with_the_same_devices(node: AgentNode) -> None:
    with node.agent() as agent:
        offered(node, CORE, MEMORY)
        before, children = node.kubelet.devices(CORE), agent.children()
        admitted = node.kubelet.admit("a", "main", BOTH)
        agent.kill()
        until(lambda: not node.kubelet.healthy(CORE) and not node.kubelet.healthy(MEMORY))
        # Its leftover files do no harm, and none of its processes remains.
        assert "vcuda-core.sock" in os.listdir(node.kubelet.folder)
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))
    with node.agent():
        offered(node, CORE, MEMORY)
        assert node.kubelet.devices(CORE) == before
        assert node.kubelet.admit("a", "main", BOTH) == admitted
        assert node.kubelet.admit("b", "main", BOTH) == admitted


def test_agent_registers_again_when_the_kubelet_closes_the_stream(
    node: AgentNode,
) -> None:
    with node.agent():
        offered(node, CORE)
        node.kubelet.plugins[CORE].close()
        until(lambda: not node.kubelet.healthy(CORE))
        offered(node, CORE)
        assert node.kubelet.registrations.count(CORE) == 2


def test_a_removed_socket_is_created_again(node: AgentNode) -> None:
    with node.agent():
        offered(node, CORE)
        os.unlink(os.path.join(node.kubelet.folder, "vcuda-core.sock"))
        until(lambda: node.kubelet.registrations.count(CORE) == 2)
        offered(node, CORE)
        assert node.kubelet.admit("a", "main", {CORE: 1}).annotations


def test_agent_registers_with_a_late_or_first_refusing_kubelet(node: AgentNode) -> None:
    node.kubelet.stop()
    until(lambda: not os.listdir(node.kubelet.folder))
    refusals: list[str] = []

    class Reluctant(Kubelet):
        def Register(self, request: Any, context: Any) -> Any:
            if len(refusals) < 4:
                refusals.append(request.resource_name)
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            return super().Register(request, context)

    with node.agent() as agent:
        waits = f"vcuda-node-agent: vcuda-core.sock: waits for {node.kubelet.folder}/kubelet.sock"
        until(lambda: waits in agent.log())
        time.sleep(1.5)
        assert agent.process.poll() is None
        assert agent.log().count(waits) == 1
        node.kubelet = Reluctant(node.kubelet.folder)
        node.kubelet.start()
        offered(node, CORE, MEMORY)
        # A repeated problem is logged once.
        line = "vcuda-node-agent: vcuda-core.sock: cannot register: not yet; trying again"
        assert (len(refusals), agent.log().count(line)) == (4, 1)


def test_stale_kubelet_socket_does_not_delay_the_next_registration(
    node: AgentNode,
) -> None:
    path = os.path.join(node.kubelet.folder, "kubelet.sock")
    node.kubelet.stop()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    with node.agent() as agent:
        until(lambda: any("cannot register" in line for line in agent.log()))
        # After 2 and 4 s it tries again after 8 s: later than the new kubelet is waited for.
        time.sleep(6.5)
        os.unlink(path)
        again = node.kubelet = Kubelet(node.kubelet.folder)
        again.start()
        until(lambda: bool(again.healthy(CORE) and again.healthy(MEMORY)), seconds=6)


def test_registration_begun_before_the_kubelet_emptied_its_folder_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a node's boot: the previous kubelet's socket, which never answers, and then the next."""
    # No registration ends by itself.
    monkeypatch.setattr(registration, "_REGISTER_SECONDS", 3600.0)
    folder = str(tmp_path / "kubelet")
    kubelet = Kubelet(folder)
    plugin = DevicePlugin(resources.CORE, settings_file.parse("", "config.toml"), followed=False)
    gpu = Gpu("GPU-0", 0, 0, 1 << 30, "model")
    plugin.publish([resources.Device("GPU-0.1", True)], [gpu], None)

    class Ending(Kubelet):
        began, ended = threading.Event(), threading.Event()

        def Register(self, request: Any, context: Any) -> Any:
            self.began.set()
            self.ended.wait(60)
            return api.Empty()

    before = Ending(folder)
    before.start()

    async def boot() -> None:
        running = asyncio.ensure_future(registration.Registration(folder, CORE, plugin).run())
        assert await asyncio.to_thread(before.began.wait, 60)
        kubelet.start()
        await asyncio.to_thread(until, lambda: bool(kubelet.healthy(CORE)))
        running.cancel()
        await asyncio.wait({running})

    try:
        asyncio.run(boot())
    finally:
        before.ended.set()
        before.stop()
        kubelet.stop()


def test_agent_is_ready_without_an_api_server(node: AgentNode, tmp_path: Path) -> None:
    """systemd starts the kubelet then, which rejects pods with a share until it is registered."""
    kubeconfig = KubeApi().kubeconfig(tmp_path / "kubeconfig")  # nothing listens there
    with node.agent(1, "--kubeconfig", kubeconfig) as agent:
        assert any(line.endswith(" GPUs, 0 unhealthy") for line in agent.log())


def _half_a_call(path: str) -> None:
    """The beginning of HTTP/2, a headers frame that promises more than comes, and no peer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
        )
        connection.sendall(bytes.fromhex("0000ff010400000001") + b"\x82")


def test_kubelets_that_vanish_during_calls_delay_no_other_call(node: AgentNode) -> None:
    path = os.path.join(node.kubelet.folder, "vcuda-core.sock")

    def vanish(number: int) -> None:
        with grpc.insecure_channel(f"unix:{path}") as channel:
            stub = services.DevicePluginStub(channel)
            watch = stub.ListAndWatch(api.Empty())
            if number % 2:
                next(watch)
            ids = [f"GPU-{n}.1" for n in range(2000)]
            stub.Allocate.future(api.AllocateRequest(container_requests=[{"devices_ids": ids}]))

    with node.agent() as agent:
        offered(node, CORE, MEMORY)
        files = len(os.listdir(f"/proc/{agent.process.pid}/fd"))
        threads = [threading.Thread(target=vanish, args=(n,)) for n in range(20)]
        threads += [threading.Thread(target=_half_a_call, args=(path,)) for _ in range(20)]
        for thread in threads:
            thread.start()
        assert node.kubelet.admit("a", "main", {CORE: 30}).annotations
        for thread in threads:
            thread.join()
        assert node.kubelet.admit("b", "main", {CORE: 30}).annotations
        assert node.kubelet.registrations.count(CORE) == 1
        # None of forty connections stays open; grpc opens some descriptors of its own at any time.
        until(lambda: len(os.listdir(f"/proc/{agent.process.pid}/fd")) < files + 5)


def test_a_kubelet_that_reads_nothing_holds_up_no_other_call(node: AgentNode) -> None:
    node.kubelet.random.seed(3)
    with node.agent() as agent:
        offered(node, CORE)
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(os.path.join(node.kubelet.folder, "vcuda-core.sock"))
            for pod in range(10):
                node.kubelet.admit(str(pod), "main", {CORE: 5})
            assert agent.process.poll() is None
    assert sum(len(entry["ids"]) for entry in node.kubelet.checkpoint()) == 50


def test_advice_about_ids_that_were_never_given_names_none_of_them(node: AgentNode) -> None:
    (first, _) = uuids(node)
    strange = ["GPU-0.1", "../..", "", f"{first}.100", f"{first}.\u00b2", f"{first}." + "9" * 5000]
    with node.agent():
        offered(node, CORE)

        def advised(size: int, *must: str) -> list[str]:
            asked = {"available_deviceIDs": [*strange, f"{first}.7"], "allocation_size": size}
            asked["must_include_deviceIDs"] = list(must)
            request = api.PreferredAllocationRequest(container_requests=[asked])
            stub = node.kubelet.plugins[CORE].stub
            (answer,) = stub.GetPreferredAllocation(request, timeout=10).container_responses
            return list(answer.deviceIDs)

        assert [advised(size) for size in (2, 1, 0, -1)] == [[f"{first}.7"]] * 2 + [[]] * 2
        assert advised(2, "GPU-0.1") == [f"{first}.7"]


def test_before_a_start_the_kubelet_has_to_ask_nothing_and_is_answered_at_once(
    node: AgentNode,
) -> None:
    (first, _) = uuids(node)
    with node.agent():
        offered(node, CORE)
        plugin = node.kubelet.plugins[CORE]
        asked = plugin.stub.GetDevicePluginOptions(api.Empty(), timeout=10)
        assert not (plugin.options.pre_start_required or asked.pre_start_required)
        # What a claim needs is held, and NVML hangs.
        node.order("fail", "--call", "nvmlDeviceGetMemoryInfo", "--hang")
        with Ledger(node.state_dir), Turn(node.state_dir) as mine:
            assert mine
            assert allocate(node, CORE, f"{first}.1").container_responses
        node.order("heal")


@pytest.mark.parametrize("seed", range(3))
def test_killing_both_during_a_hundred_pods_loses_no_device(node: AgentNode, seed: int) -> None:
    """Each pod has the units that it asked for, no unit is given twice, and all come back."""
    kubelet = node.kubelet = Kubelet(node.kubelet.folder, seed)
    kubelet.start()
    live: list[str] = []
    for run in range(3):
        with node.agent() as agent:
            offered(node, CORE, MEMORY)
            for pod in range(34):
                name = f"{run}-{pod}"
                wanted = {CORE: kubelet.random.randint(1, 15), MEMORY: kubelet.random.randint(1, 9)}
                annotations = kubelet.admit(name, "main", wanted).annotations
                assert annotations["vcuda.io/request.vcuda-core"] == str(wanted[CORE])
                assert annotations["vcuda.io/request.vcuda-memory"] == str(wanted[MEMORY])
                live.append(name)
                if len(live) > 8:
                    kubelet.forget(live.pop(kubelet.random.randrange(len(live))))
            for resource in BOTH:
                entries = [e for e in kubelet.checkpoint() if e["resource"] == resource]
                ids = [id for entry in entries for id in entry["ids"]]
                assert (len(ids), {e["pod"] for e in entries}) == (len(set(ids)), set(live))
                assert set(ids) <= kubelet.healthy(resource)
            agent.kill()
            until(lambda: not kubelet.healthy(CORE) and not kubelet.healthy(MEMORY))
