"""No entry point gives a new container a GPU that the agent reports as unhealthy."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.agent.node_agent import Agent
from support.ledger.samples import shares_of
from support.softgpu.softgpu_host import BUILT, SoftGpu
from support.waiting import until
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import Node, asking


class Host:
    """A node with two GPUs, the wrapper and an agent."""

    def __init__(self, prefix: str, folder: Path) -> None:
        self.gpu = SoftGpu(folder, "--gpus", "2", "--memory", "16GiB")
        self.first, self.second = self.gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()
        root: Any = SimpleNamespace(path=str(self.gpu.root))
        self.node = Node(Installed(f"{folder}/prefix"), root, folder)
        self.file = self.node.ledger.state_dir + "/unhealthy.json"
        self._program, self._command = prefix + "/bin/vcuda-node-agent", prefix + "/bin/vcuda"
        self.agents: list[Agent] = []

    def agent(self) -> Agent:
        folder = self.node.folder + "/kubelet"
        words = ["--config", self.node.installed.settings, "--kubelet-dir", folder]
        agent = Agent([self._program, *words])
        self.agents.append(agent)
        agent.await_ready()
        return agent

    def order(self, command: str, *arguments: str) -> None:
        subprocess.run([BUILT / "softgpu", command, self.gpu.root, *arguments], check=True)

    def vcuda(self, *words: str) -> None:
        """Raises CalledProcessError: it failed."""
        program = [self._command, "--config", self.node.installed.settings, *words]
        subprocess.run(program, check=True)

    def gets(self, id: str, core: int = 30, **words: str) -> str:
        """The GPUs that a new container gets, or its error without the id."""
        annotations = {"vcuda.io/" + key: value for key, value in words.items()}
        spec = asking({"vcuda.io/core": str(core), **annotations})
        status, errors = self.node.create(spec, id=id)
        if status:
            assert errors.endswith(f" (allocation {id})\n")
            return errors.partition(": ")[2].removesuffix(f" (allocation {id})\n")
        return " ".join(share.uuid for share in shares_of(self.node.ledger)[id])


@pytest.fixture
def host(agent_prefix: str, tmp_path: Path) -> Iterator[Host]:
    host = Host(agent_prefix, tmp_path)
    yield host
    for agent in host.agents:  # of a test that failed before it ended them
        agent.kill()
    subprocess.run([BUILT / "softgpu", "destroy", host.gpu.root], check=True)


def logged(agent: Agent, words: str) -> Callable[[], bool]:
    return lambda: any(words in line for line in agent.log())


def test_drained_gpu_is_withdrawn_until_undrained_whatever_restarts(host: Host) -> None:
    hint = "name another GPU, ask for less, or run 'vcuda undrain'"
    why = f"placement: {host.first} is drained; {hint}"
    agent = host.agent()
    until(logged(agent, "2 GPUs, 0 unhealthy"))
    host.vcuda("drain", "0", "--yes")
    until(logged(agent, "2 GPUs, 1 unhealthy"))
    assert not any("is unhealthy" in line for line in agent.log())
    assert (host.gets("named", gpu="0"), host.gets("free")) == (why, host.second)
    agent.kill()
    assert host.gets("named", gpu="0") == why
    agent.end()
    agent = host.agent()
    until(logged(agent, "2 GPUs, 1 unhealthy"))
    host.vcuda("undrain", "0")
    until(logged(agent, "2 GPUs, 0 unhealthy"))
    assert host.gets("named", gpu="0") == host.first
    agent.end()


def test_a_gpu_with_a_lasting_xid_gets_no_container_until_it_is_healthy(
    host: Host,
) -> None:
    hint = "reset the GPU, or ask for less or another"
    why = f"{host.first} is unhealthy: Xid 95"
    none_left = f"placement: 1 of 2 GPUs are wholly free; 2 asked ({why}); {hint}"
    agent = host.agent()
    until(logged(agent, "2 GPUs, 0 unhealthy"))
    assert host.gets("before") == host.first
    host.order("fail", "--event", "0", "--xid", "95")
    until(lambda: os.path.exists(host.file))
    # A restarted container retains its GPU: it may have caused the Xid itself.
    assert host.gets("before") == host.first
    assert host.gets("whole", 200) == none_left
    assert host.gets("named", gpu="0") == f"placement: {why}; {hint}"
    assert host.gets("after") == host.second
    agent.kill()
    assert host.gets("named", gpu="0") == f"placement: {why}; {hint}"
    agent.end()
    agent = host.agent()
    until(logged(agent, "2 GPUs, 1 unhealthy"))
    assert host.gets("named", gpu="0") == f"placement: {why}; {hint}"
    os.unlink(host.file)
    until(logged(agent, f"{host.first} is healthy again"))
    assert host.gets("named", gpu="0") == host.first
    agent.end()
