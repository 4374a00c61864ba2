"""The installed node agent with a software GPU and a state folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.kubelet.fake_kubelet import Kubelet
from support.processes import children_of, name_of
from support.softgpu.softgpu_host import BUILT, SoftGpu
from support.waiting import until


def only_child(pid: int) -> int:
    """Wait until a process has one child; return the child's pid."""
    until(lambda: len(children_of(pid)) == 1, f"the only child of pid {pid}")
    (child,) = children_of(pid)
    return child


class AgentNode:
    """A node with its own state folder, kubelet and GPU. prefix: where the product is installed."""

    def __init__(self, folder: Path, prefix: str, *gpu: str) -> None:
        self.gpu = SoftGpu(folder, *(gpu or ("--gpus", "2", "--memory", "16GiB")))
        self.program = os.path.join(prefix, "bin/vcuda-node-agent")
        self.state_dir = str(folder / "state")
        self.config = str(folder / "config.toml")
        self.kubelet = Kubelet(str(folder / "kubelet"))
        self.configure()

    def configure(self, **settings: object) -> None:
        values = {
            "state-dir": self.state_dir,
            "driver-root": str(self.gpu.root),
            **{key.replace("_", "-"): value for key, value in settings.items()},
            "listen": settings.get("listen", ""),  # agents of several tests run at once
        }
        with open(self.config, "w", encoding="utf-8") as file:
            # JSON's strings and lists are TOML's too.
            file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in values.items())

    @contextlib.contextmanager
    def agent(self, watchdog_seconds: float = 1, *words: str) -> Iterator[Agent]:
        """Run the agent until the block ends; it is ready. words: options."""
        command = [self.program, "--config", self.config, "--kubelet-dir", self.kubelet.folder]
        agent = Agent([*command, *words], watchdog_seconds)
        try:
            agent.await_ready()
            yield agent
        finally:
            agent.end()

    def order(self, command: str, *arguments: str) -> None:
        """Run `softgpu fail` or `softgpu heal`."""
        subprocess.run([BUILT / "softgpu", command, self.gpu.root, *arguments], check=True)

    def close(self) -> None:
        self.kubelet.stop()
        shutil.rmtree(self.gpu.root / "sys", ignore_errors=True)
        subprocess.run([BUILT / "softgpu", "destroy", self.gpu.root], check=True)


class Agent:
    """A running agent with the environment of a systemd service."""

    def __init__(self, command: list[str], watchdog_seconds: float = 1, **more: str) -> None:
        """more: of its environment."""
        self._folder = tempfile.TemporaryDirectory()
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(self._folder.name + "/notify")
        self._notify.settimeout(30)
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "NOTIFY_SOCKET": self._folder.name + "/notify",
            "WATCHDOG_USEC": str(int(watchdog_seconds * 1e6)),
            **more,
        }
        self._log = open(self._folder.name + "/log", "w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(command, env=environment, stderr=self._log)

    def next_notification(self) -> str:
        """The agent's next notification for systemd."""
        return self._notify.recv(256).decode()

    def await_ready(self) -> None:
        try:
            assert self.next_notification() == "READY=1"
        except socket.timeout:
            raise AssertionError(f"not ready: {self.log()}") from None

    def log(self) -> list[str]:
        with open(self._log.name, encoding="utf-8") as lines:
            return lines.read().splitlines()

    def fork_server(self) -> int:
        return only_child(self.process.pid)

    def children(self, name: str = "") -> list[int]:
        """The agent's child processes; with a name, those of that name."""
        children = children_of(self.fork_server())
        return [pid for pid in children if name in ("", name_of(pid))]

    def child(self, name: str) -> int:
        """Wait for the agent's child process of this name; return its pid."""
        until(lambda: len(self.children(name)) == 1, f"the agent's process {name}")
        (child,) = self.children(name)
        return child

    def kill(self) -> None:
        """Kill the agent; it is not started again."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        status = 0
        was_killed = self.process.poll() == -signal.SIGKILL
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            status = self.process.wait(30)
        log = self.log()
        self._notify.close()
        self._log.close()
        self._folder.cleanup()
        assert status == 0, log
        # Its processes end with it, at any step.
        assert was_killed or not any("Traceback" in line for line in log), log
