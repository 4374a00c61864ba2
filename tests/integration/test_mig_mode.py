"""A GPU in MIG mode is divided already: it is shown, and nothing of it is shared."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

from integration.node_agent import AgentNode
from integration.test_device_plugin import CORE, MEMORY, offered
from unit.ground import GIB

MACHINE = ("--gpus", "3", "--mig", "1=2", "--memory", "16GiB", "--topology", "pcie=2")
LOOK = """
import pynvml
pynvml.nvmlInit()
found = []
for at in range(3):
    device = pynvml.nvmlDeviceGetHandleByIndex(at)
    found.append([pynvml.nvmlDeviceGetMigMode(device)[0]])
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
        except pynvml.NVMLError_NotFound:
            continue
        assert pynvml.nvmlDeviceIsMigDeviceHandle(mig)
        parent = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
        assert pynvml.nvmlDeviceGetUUID(parent) == pynvml.nvmlDeviceGetUUID(device)
        found[-1].append(pynvml.nvmlDeviceGetUUID(mig))
say(found=found)
"""


def test_its_devices_are_shown_and_neither_cores_nor_memory_of_it_are_offered(
    new_node: Callable[..., AgentNode],
) -> None:
    node = new_node(*MACHINE)
    first, _, third = node.gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()

    def vcuda(*words: str) -> str:
        program = os.path.join(os.path.dirname(node.program), "vcuda")
        command = [program, "--config", node.config, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    with node.agent():
        offered(node, CORE, MEMORY)
        for resource in (CORE, MEMORY):
            ids = node.kubelet.devices(resource)
            assert {id.partition(".")[0] for id in ids} == {first, third}
        shown: list[Any] = [gpu["mig_devices"] for gpu in json.loads(vcuda("gpus", "--json"))]
        names = node.gpu.client(LOOK)["found"]
        assert [found[0] for found in names] == [0, 1, 0]
        assert shown == [None, dict.fromkeys(names[1][1:], 8 * GIB), None]
        assert len(set(names[1][1:])) == 2
        lines = vcuda("gpus").splitlines()
        ends = [line.rpartition("  ")[2].strip() for line in lines]
        assert ends == ["MIG DEVICES", "-", "2 of 8 GiB", "-"]
