"""An unhealthy GPU is withdrawn, and offered again once it is healthy."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import pytest

from contract.agent.test_device_plugin import CORE, MEMORY, allocate, offered, uuids
from support.agent.node_agent import Agent, AgentNode
from support.softgpu.softgpu_host import SoftGpu
from support.waiting import until
from vcuda_oci.host import nvml
from vcuda_oci.ledger import unhealthy


def gpus_offered(node: AgentNode, resource: str = CORE) -> list[str]:
    healthy = {id.partition(".")[0] for id in node.kubelet.healthy(resource)}
    return [uuid for uuid in uuids_there(node) if uuid in healthy]


def uuids_there(node: AgentNode) -> list[str]:
    """Of the devices, so that nothing is asked of a GPU that hangs."""
    return sorted({id.partition(".")[0] for id in node.kubelet.devices(CORE)})


def test_lost_gpu_is_withdrawn_and_offered_again_when_restored(
    node: AgentNode,
) -> None:
    first, second = uuids(node)
    with node.agent() as agent:
        offered(node, CORE, MEMORY)
        assert unhealthy.reasons(node.state_dir) == {}
        node.order("fail", "--lost", "0")
        until(lambda: gpus_offered(node) == gpus_offered(node, MEMORY) == [second])
        assert len(node.kubelet.devices(CORE)) == 200
        assert node.kubelet.admit("a", "main", {CORE: 50}).annotations
        # The Xid came at once, and the GPU is seen to fail before it is healed.
        until(lambda: any("GPU is lost" in line for line in agent.log()))
        assert unhealthy.reasons(node.state_dir) == {first: "GPU is lost"}
        node.order("heal")
        until(lambda: gpus_offered(node) == gpus_offered(node, MEMORY) == sorted([first, second]))
        until(lambda: unhealthy.reasons(node.state_dir) == {})
        assert agent.process.poll() is None
        assert node.kubelet.registrations.count(CORE) == 1


def test_hanging_nvml_blocks_no_kubelet_call_and_its_gpus_return(
    node: AgentNode,
) -> None:
    (first, _) = uuids(node)
    with node.agent() as agent:
        offered(node, CORE)
        node.order("fail", "--call", "nvmlEventSetWait_v2", "--hang")
        time.sleep(3)
        began = time.monotonic()
        allocate(node, CORE, f"{first}.1")
        assert time.monotonic() - began < 5
        until(lambda: gpus_offered(node) == [])
        assert "vcuda-node-agent: NVML: no answer for 8 s; asking anew" in agent.log()
        node.order("heal")
        until(lambda: len(gpus_offered(node)) == 2)


def test_gpu_with_hanging_nvml_is_withdrawn_alone_until_it_answers(
    node: AgentNode,
) -> None:
    first, second = uuids(node)
    with node.agent() as agent:
        offered(node, CORE, MEMORY)
        children = agent.children()
        node.order("fail", "--call", "nvmlDeviceGetMemoryInfo", "--gpu", "1", "--hang")
        until(lambda: gpus_offered(node) == gpus_offered(node, MEMORY) == [first])
        # The other GPUs are polled on, and their events arrive.
        node.order("fail", "--event", "0", "--xid", "94")
        until(lambda: gpus_offered(node) == [])
        node.order("heal")
        until(lambda: gpus_offered(node) == [second])
        assert agent.children() == children
        assert [line.partition(": ")[2] for line in agent.log() if " is " in line] == [
            f"{second} is unhealthy: NVML hangs",
            f"{first} is unhealthy: Xid 94",
            f"{second} is healthy again",
        ]


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (["--lost", "0"], "nvmlDeviceGetHandleByIndex_v2: GPU is lost"),
        (
            ["--call", "nvmlDeviceGetMemoryInfo", "--gpu", "0", "--error", "NVML_ERROR_TIMEOUT"],
            "nvmlDeviceGetMemoryInfo: Timeout",
        ),
        (["--call", "nvmlDeviceGetMemoryInfo", "--gpu", "0", "--hang"], "NVML hangs"),
        (["--call", "nvmlDeviceGetPciInfo_v3", "--gpu", "0", "--hang"], "NVML hangs"),
    ],
    ids=["lost", "silent", "hangs", "hangs in what is not vital"],
)
def test_gpu_that_fails_at_the_first_poll_affects_no_other(
    node: AgentNode, order: list[str], why: str
) -> None:
    first, second = uuids(node)
    node.order("fail", *order)
    with node.agent() as agent:
        until(lambda: gpus_offered(node) == gpus_offered(node, MEMORY) == [second])
        assert uuids_there(node) == [second]
        assert f"vcuda-node-agent: GPU 0 is left out: {why}" in agent.log()
        node.order("heal")
        until(lambda: gpus_offered(node) == gpus_offered(node, MEMORY) == sorted([first, second]))


def test_what_lasts_outlives_the_agent_until_its_file_is_removed(node: AgentNode) -> None:
    first, second = uuids(node)
    kept = node.state_dir + "/unhealthy.json"
    with node.agent() as agent:
        offered(node, CORE)
        assert not os.path.exists(kept)
        node.order("fail", "--event", "0", "--xid", "48")
        until(lambda: gpus_offered(node) == [second])
        agent.kill()
    with node.agent() as agent:
        offered(node, CORE)
        assert gpus_offered(node) == [second]
        assert f"vcuda-node-agent: {first} is unhealthy: Xid 48" in agent.log()
        os.unlink(kept)
        until(lambda: gpus_offered(node) == sorted([first, second]))
    assert not os.path.exists(kept)


def test_killed_probe_is_restarted_and_loses_no_gpu(node: AgentNode) -> None:
    with node.agent() as agent:
        offered(node, CORE)
        for _ in range(3):
            lists = node.kubelet.plugins[CORE].lists
            probe = agent.child("gpu_probe")
            os.kill(probe, signal.SIGKILL)
            until(lambda probe=probe: agent.children("gpu_probe") not in ([], [probe]))
        assert (len(gpus_offered(node)), node.kubelet.plugins[CORE].lists) == (2, lists)


def faults_of_ended_children(agent: Agent) -> int:
    """Pages that they asked for, which grows with each that ends. Source: proc(5), cminflt."""
    with open(f"/proc/{agent.fork_server()}/stat") as line:
        return int(line.read().rpartition(")")[2].split()[8])


def test_nvml_that_hangs_from_the_start_hangs_no_end(node: AgentNode) -> None:
    node.order("fail", "--call", "nvmlDeviceGetCount_v2", "--hang")
    with node.agent() as agent:
        # Nothing is known, so nothing is offered.
        time.sleep(2)
        assert node.kubelet.registrations == []
        began = time.monotonic()
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(30) == 0
        assert time.monotonic() - began < 20
    node.order("heal")
    with node.agent():
        offered(node, CORE)


def test_an_xid_counts_by_its_class_and_the_class_is_a_setting(node: AgentNode) -> None:
    first, second = uuids(node)
    node.configure(ignored_xids=["31", "94"], lasting_xids=["13"])
    with node.agent() as agent:
        offered(node, CORE)
        node.order("fail", "--event", "0", "--xid", "94")
        node.order("fail", "--event", "1", "--xid", "13")
        until(lambda: gpus_offered(node) == [first])
        assert [line for line in agent.log() if "unhealthy: " in line] == [
            f"vcuda-node-agent: {second} is unhealthy: Xid 13"
        ]
        assert unhealthy.read(node.state_dir) == {second: unhealthy.GpuFault("", 13, None)}


def test_node_without_a_driver_warns_once_and_offers_gpus_later(
    node: AgentNode,
) -> None:
    root = f"{node.gpu.root}-later"
    node.configure(driver_root=root)
    with node.agent() as agent:
        # A probe lives too shortly to be seen each time, but what it took is counted at its end.
        ended: set[int] = set()
        until(lambda: ended.add(faults_of_ended_children(agent)) or len(ended) > 3)
        assert agent.log() == [
            f"vcuda-node-agent: no GPU is offered: {root}: no NVIDIA driver: libcuda.so.1 is in no "
            "library folder; install the driver, or set driver-root in config.toml to the folder "
            "that holds it"
        ]
        os.symlink(node.gpu.root, root)
        offered(node, CORE, MEMORY)
        # A second occurrence is reported again.
        os.unlink(root)
        until(lambda: sum("no NVIDIA driver" in line for line in agent.log()) == 2)


def test_added_gpu_is_offered_and_a_removed_one_is_not(node: AgentNode) -> None:
    with node.agent():
        offered(node, CORE)
        before = uuids(node)
        tool = node.gpu.root.parent
        subprocess.run(["mv", node.gpu.root, f"{tool}/before"], check=True)
        try:
            node.gpu = SoftGpu(tool, "--gpus", "3", "--memory", "16GiB", "--seed", "7")
            until(lambda: len(uuids_there(node)) == 3)
            assert set(uuids_there(node)) == set(uuids(node)) != set(before)
        finally:
            subprocess.run(["rm", "-rf", f"{tool}/before"], check=True)


def test_a_gpu_that_hangs_before_anything_is_known_of_it_holds_no_container_up(
    node: AgentNode,
) -> None:
    """Nor does it cost a process that asks again more than one thread and one wait."""
    (_, second) = uuids(node)
    library = str(node.gpu.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1")
    node.order("fail", "--call", "nvmlDeviceGetMemoryInfo", "--gpu", "0", "--hang")
    before = threading.active_count()
    try:
        seconds = []
        for _ in range(3):
            began = time.monotonic()
            inventory = nvml.inventory(library)
            seconds.append(time.monotonic() - began)
            assert [gpu.uuid for gpu in inventory.gpus] == [second]
            assert str(inventory.silent[0]) == f"{library}: NVML hangs; reset the GPU, or reboot"
        assert seconds[0] >= nvml.FIRST_ANSWER_SECONDS > max(seconds[1:])
        assert threading.active_count() == before + 1
    finally:
        node.order("heal")
    until(lambda: threading.active_count() == before)
    assert (len(nvml.inventory(library).gpus), nvml.inventory(library).silent) == (2, {})
