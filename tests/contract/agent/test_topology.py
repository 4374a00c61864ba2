"""On a machine with two NVLink islands, whole GPUs are placed and preferred by island."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from contract.agent.test_device_plugin import CORE, GPU, offered
from support.agent.node_agent import AgentNode
from support.kubelet.fake_kubelet import api
from support.ledger.samples import shares_of
from support.softgpu.softgpu_host import BUILT, SoftGpu
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import Node, asking

ISLANDS = ("--gpus", "8", "--topology", "nvlink=4,pcie=2,numa=4", "--memory", "16GiB")


def test_containers_get_gpus_that_are_linked_and_leave_linked_ones_free(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, *ISLANDS)
    uuids = gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()
    root: Any = SimpleNamespace(path=str(gpu.root))
    node = Node(Installed(tmp_path / "prefix"), root, tmp_path)

    def gets(id: str, core: int, placement: str = "binpack") -> list[int]:
        words = {"vcuda.io/core": str(core), "vcuda.io/placement": placement}
        assert node.create(asking(words), id=id) == (0, "")
        return [uuids.index(share.uuid) for share in shares_of(node.ledger)[id]]

    assert gets("one", 100) == [0]
    assert gets("four", 400) == [4, 5, 6, 7]
    # The GPU without a partner is used first.
    assert gets("share", 30, "topology") == [1]
    assert gets("another", 30, "topology") == [1]
    assert gets("half", 150) == [2, 3]
    subprocess.run([BUILT / "softgpu", "destroy", gpu.root], check=True)


def test_the_kubelet_gets_the_nearest_gpus_and_their_numa_nodes(
    new_node: Callable[..., AgentNode],
) -> None:
    node = new_node(*ISLANDS)
    uuids = node.gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()
    node.configure(gpu_resource=GPU)

    def advised(resource: str, ids: list[str], size: int) -> list[int]:
        asked = {"available_deviceIDs": ids, "allocation_size": size}
        request = api.PreferredAllocationRequest(container_requests=[asked])
        stub = node.kubelet.plugins[resource].stub
        (answer,) = stub.GetPreferredAllocation(request, timeout=10).container_responses
        return [uuids.index(uuid) for uuid in dict.fromkeys(answer.deviceIDs)]

    with node.agent():
        offered(node, GPU, CORE)
        found = {uuids.index(id): device.numa for id, device in node.kubelet.devices(GPU).items()}
        assert found == {number: (number // 4,) for number in range(8)}
        assert advised(GPU, uuids[1:], 4) == [4, 5, 6, 7]
        assert advised(GPU, uuids[1:], 2) == [2, 3]
        assert advised(GPU, uuids[1:], 1) == [1]
