"""The device plugin offers this node's GPUs to the kubelet and answers Allocate."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from support.agent.node_agent import Agent, AgentNode
from support.kubelet.fake_kubelet import Admitted, Device, Refused, api
from support.waiting import until

CORE, MEMORY, GPU = "tencent.com/vcuda-core", "tencent.com/vcuda-memory", "nvidia.com/gpu"


def uuids(node: AgentNode) -> list[str]:
    listed = node.gpu.smi("--query-gpu=uuid", "--format=csv,noheader")
    return listed.split()


def offered(node: AgentNode, *resources: str) -> None:
    """Wait until the kubelet sees healthy devices of each."""
    until(lambda: all(node.kubelet.healthy(resource) for resource in resources))


def allocate(node: AgentNode, resource: str, *ids: str) -> Any:
    request = api.AllocateRequest(container_requests=[{"devices_ids": ids}])
    return node.kubelet.plugins[resource].stub.Allocate(request, timeout=10)


def test_core_ids_are_hundredths_with_their_numa_node_and_memory_ids_256_mib(
    node: AgentNode,
) -> None:
    first, second = uuids(node)
    # The kernel gives a NUMA node for the first GPU only.
    (bus_id, _) = sorted(os.listdir(node.gpu.root / "proc/driver/nvidia/gpus"))
    place = node.gpu.root / "sys/bus/pci/devices" / bus_id.lower()
    place.mkdir(parents=True)
    (place / "numa_node").write_text("1\n")
    with node.agent():
        offered(node, CORE, MEMORY)
        cores = {f"{first}.{n}": Device(True, (1,)) for n in range(100)}
        cores |= {f"{second}.{n}": Device(True) for n in range(100)}
        memory = {f"{uuid}.{n}": Device(True) for uuid in (first, second) for n in range(64)}
        assert (node.kubelet.devices(CORE), node.kubelet.devices(MEMORY)) == (cores, memory)
        assert sorted(node.kubelet.plugins) == [CORE, MEMORY]


def test_a_container_is_started_with_its_request_as_annotations_and_as_mounts(
    node: AgentNode,
) -> None:
    requests = node.state_dir + "/requests"
    with node.agent():
        offered(node, CORE, MEMORY)
        admitted = node.kubelet.admit("pod", "main", {CORE: 30, MEMORY: 20})
    assert admitted == Admitted(
        {
            "vcuda.io/request.vcuda-core": "30",
            "vcuda.io/request.vcuda-memory": "20",
            "tencent.com/vcuda-core": "30",
            "tencent.com/vcuda-memory": "20",
        },
        [
            (f"{requests}/vcuda-core/30", "/usr/local/vcuda/request/vcuda-core"),
            (f"{requests}/vcuda-memory/20", "/usr/local/vcuda/request/vcuda-memory"),
        ],
    )
    assert all(os.path.isdir(source) for source, _ in admitted.mounts)


def test_the_same_allocate_twice_has_the_same_answer_and_takes_nothing(node: AgentNode) -> None:
    (first, _) = uuids(node)
    with node.agent():
        offered(node, CORE)
        ids = [f"{first}.{n}" for n in (7, 3, 5)]
        once, twice = allocate(node, CORE, *ids), allocate(node, CORE, *reversed(ids))
        assert once == twice
        assert once.container_responses[0].annotations["vcuda.io/request.vcuda-core"] == "3"
        assert len(node.kubelet.healthy(CORE)) == 200


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        (["{gpu}.100"], "no device '{gpu}.100' here"),
        (["GPU-0.1"], "no device 'GPU-0.1' here"),
        (["{gpu}.1", "../../etc"], "no device '../../etc' here"),
        (["{gpu}.1", "{gpu}.1"], "not a set of devices"),
        ([], "not a set of devices"),
    ],
    ids=["beyond the last", "another node's", "a path", "one twice", "none"],
)
def test_ids_that_were_never_given_are_refused_in_one_line(
    node: AgentNode, ids: list[str], what: str
) -> None:
    (first, _) = uuids(node)
    with node.agent():
        offered(node, CORE)
        with pytest.raises(grpc.RpcError) as refused:
            allocate(node, CORE, *(id.format(gpu=first) for id in ids))
        assert (refused.value.code(), refused.value.details()) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            f"Allocate of vcuda-core: {what.format(gpu=first)}; "
            "restart the kubelet if it says so again",
        )
        assert node.kubelet.admit("pod", "main", {CORE: 1}).annotations


def test_small_shares_fill_one_gpu_and_whole_ones_come_from_the_untouched(node: AgentNode) -> None:
    def gpus_of(pod: str) -> set[str]:
        entries = [entry for entry in node.kubelet.checkpoint() if entry["pod"] == pod]
        return {id.partition(".")[0] for entry in entries for id in entry["ids"]}

    with node.agent():
        offered(node, CORE)
        for pod, core in (("a", 30), ("b", 40), ("c", 100), ("d", 30)):
            node.kubelet.admit(pod, "main", {CORE: core})
        with pytest.raises(Refused, match=r"requested 1 of .*, available 0"):
            node.kubelet.admit("e", "main", {CORE: 1})
    assert gpus_of("a") == gpus_of("b") == gpus_of("d")
    assert (len(gpus_of("a")), len(gpus_of("c")), gpus_of("a") & gpus_of("c")) == (1, 1, set())


def test_whole_gpus_are_offered_under_the_configured_name_unless_disabled(
    node: AgentNode,
) -> None:
    node.configure(core_resource="", memory_resource="example.org/blocks", gpu_resource=GPU)
    with node.agent():
        offered(node, "example.org/blocks", GPU)
        assert sorted(node.kubelet.plugins) == ["example.org/blocks", GPU]
        assert node.kubelet.devices(GPU) == {uuid: Device(True) for uuid in uuids(node)}
        assert node.kubelet.admit("pod", "main", {GPU: 2}) == Admitted(
            {"vcuda.io/request.gpu": "2"},
            [(node.state_dir + "/requests/gpu/2", "/usr/local/vcuda/request/gpu")],
        )


def test_memory_that_is_promised_more_than_once_has_as_many_units_more(node: AgentNode) -> None:
    node.configure(memory_overcommit="1.5")
    with node.agent():
        offered(node, MEMORY)
        assert len(node.kubelet.healthy(MEMORY)) == 2 * 96


def test_eight_h200_stay_within_what_the_kubelet_takes(new_node: Callable[..., AgentNode]) -> None:
    node = new_node("--gpus", "8", "--memory", "143771MiB")
    with node.agent():
        offered(node, CORE, MEMORY)
        sizes = {name: len(node.kubelet.healthy(name)) for name in (CORE, MEMORY)}
        assert sizes == {CORE: 800, MEMORY: 8 * 561}
        # Measured on the kubelet's own code with as many: 232 KB.
        assert sum(plugin.message_bytes for plugin in node.kubelet.plugins.values()) < 320_000
        assert max(len(id) for name in sizes for id in node.kubelet.healthy(name)) <= 63
        for pod in range(80):
            node.kubelet.admit(str(pod), "main", {CORE: 10, MEMORY: 56})
        assert sum(len(entry["ids"]) for entry in node.kubelet.checkpoint()) == 80 * 66


def test_more_units_than_the_kubelet_reads_are_not_offered_and_the_others_are(
    new_node: Callable[..., AgentNode],
) -> None:
    node = new_node("--gpus", "4", "--memory", "141GiB")
    node.configure(memory_overcommit="100")
    with node.agent() as agent:
        offered(node, CORE)
        assert (
            "vcuda-node-agent: resource vcuda-memory: 225600 units, and the kubelet can take "
            "50000; lower memory-overcommit, or switch it off"
        ) in agent.log()
        assert node.kubelet.registrations == [CORE]


def test_a_terminated_agent_removes_its_sockets_and_ends_its_children(
    node: AgentNode,
) -> None:
    with node.agent() as agent:
        offered(node, CORE, MEMORY)
        assert sorted(os.listdir(node.kubelet.folder)) == [
            "kubelet.sock", "vcuda-core.sock", "vcuda-memory.sock"
        ]  # fmt: skip
        children = agent.children()
        assert len(children) == 3
    assert os.listdir(node.kubelet.folder) == ["kubelet.sock"]
    assert [pid for pid in children if os.path.exists(f"/proc/{pid}")] == []
    assert "door.sock" not in os.listdir(node.state_dir)


def test_systemd_is_notified_more_often_than_required(node: AgentNode) -> None:
    with node.agent() as agent:
        assert [agent.next_notification() for _ in range(3)] == ["WATCHDOG=1"] * 3


def test_a_systemd_that_does_not_read_delays_nothing(node: AgentNode) -> None:
    command = [node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder]
    agent = Agent(command, watchdog_seconds=0.03)
    try:
        offered(node, CORE)
        # The socket buffers some ten messages; a hundred are unread by now.
        time.sleep(1)
        assert node.kubelet.admit("pod", "main", {CORE: 1}).annotations
    finally:
        agent.end()


def test_a_second_agent_on_the_node_is_refused_in_one_line(node: AgentNode) -> None:
    with node.agent():
        offered(node, CORE)
        second = Agent([node.program, "--config", node.config])
        assert second.process.wait(30) == 1
        assert second.log() == [
            f"vcuda-node-agent: {node.state_dir}/arbiter.lock: another arbiter grants here; "
            "find it with 'fuser' and end it"
        ]
        second.end()
        assert len(node.kubelet.healthy(CORE)) == 200


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"core_resource": GPU, "gpu_resource": GPU},
            "{config}: two resources have one name; name each differently",
        ),
        (
            {"core_resource": "vcuda-core"},
            "{config}:3: core-resource cannot be 'vcuda-core'; "
            'write a domain and a name such as tencent.com/vcuda-core, or ""',
        ),
        ({"lasting_xids": ["all"]}, '{config}:3: invalid Xid \'all\'; write numbers: ["48", "62"]'),
    ],
    ids=["one name for two", "no domain", "no number"],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(
    node: AgentNode, settings: dict[str, Any], line: str
) -> None:
    node.configure(**settings)
    agent = Agent([node.program, "--config", node.config])
    assert agent.process.wait(30) == 1
    assert agent.log() == ["vcuda-node-agent: " + line.format(config=node.config)]
    agent.end()
    assert not os.path.exists(node.state_dir)


def test_settings_that_are_named_and_not_there_are_no_defaults(node: AgentNode) -> None:
    agent = Agent([node.program, "--config", node.config + ".typo"])
    assert agent.process.wait(30) == 1
    what = "no such file; name an existing file, or leave --config out"
    assert agent.log() == [f"vcuda-node-agent: {node.config}.typo: {what}"]
    agent.end()


def test_the_installed_unit_starts_the_installed_program(
    node: AgentNode, agent_prefix: str
) -> None:
    lines = Path(agent_prefix, "units/vcuda-node-agent.service").read_text()
    unit = dict(line.split("=", 1) for line in lines.splitlines() if line[:1].isalpha())
    # READY=1 and WATCHDOG=1 are tested above.
    assert (unit["Type"], int(unit["WatchdogSec"]) > 0, unit["Restart"]) == (
        "notify",
        True,
        "always",
    )
    assert not {"PrivateTmp", "ProtectSystem", "PrivateMounts"} & unit.keys()
    assert unit["ExecStart"] == node.program
    result = subprocess.run([unit["ExecStart"], "--help"], capture_output=True, text=True)
    assert (result.returncode, result.stderr, "--kubelet-dir DIR" in result.stdout) == (0, "", True)


def test_program_without_grpc_names_the_package(node: AgentNode) -> None:
    without = "/usr/bin/python3"
    result = subprocess.run([without, "-ISB", node.program], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (
        1,
        f"vcuda-node-agent: {without}: no module grpc; run 'apt-get install python3-grpcio "
        "python3-protobuf python3-h11 python3-prometheus-client python3-kubernetes'\n",
    )
