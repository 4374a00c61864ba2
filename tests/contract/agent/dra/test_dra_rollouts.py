"""DRA while agents restart, follow one another, or change how they offer the GPUs."""

from __future__ import annotations

import os
import socket
import time

from contract.agent.test_device_plugin import CORE, uuids
from support.kubelet.dra_node import DraNode
from support.waiting import until


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
        until(lambda: dra.kubelet.sockets() == [], seconds=60)
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
