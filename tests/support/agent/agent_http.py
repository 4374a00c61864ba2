"""The agent's HTTP process over a state folder, and a client for it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from typing import Any

from support.files import ROOT
from vcuda_plugin.kube.node_gpus import NodeGpus

_START = "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); " + (
    "from vcuda_oci.system import settings_file\n"
    "from vcuda_plugin.agent.http.http_process import main\n"
    "main(settings_file.parse(sys.argv[1], 'config.toml'), 'node-1')"
)


class Served:
    """A running HTTP process that accepts connections and knows no GPU yet."""

    def __init__(self, state_dir: str, *more: str) -> None:
        """more: further lines of the settings."""
        self.port = free_port()
        self.process = subprocess.Popen(
            command(self.port, state_dir, *more), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout and self.process.stdout.readline() == b"open\n"

    def send_gpus(self, gpus: NodeGpus) -> None:
        """Send GPUs as the agent does; return once the process shows them."""
        assert self.process.stdin
        self.process.stdin.write(gpus.dump().encode() + b"\n")
        self.process.stdin.flush()
        seen = [gpu.uuid for gpu in gpus.gpus]
        while [gpu["uuid"] for gpu in self.tree("/usage")["gpus"] or []] != seen:
            pass

    def get(
        self, path: str, method: str = "GET", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def tree(self, path: str) -> Any:
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def end(self) -> int:
        """End the process with SIGTERM, as the agent does; return its exit status."""
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode


def command(port: int, state_dir: str, *more: str) -> list[str]:
    sources = ":".join(f"{ROOT}/{part}" for part in ("oci", "runtime_hook", "plugin"))
    start = [sys.executable, "-IBc", _START, sources]
    lines = (f'listen = "127.0.0.1:{port}"', f'state-dir = "{state_dir}"', *more)
    return [*start, "\n".join(lines)]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
