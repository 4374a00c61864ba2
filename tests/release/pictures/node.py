"""A node agent with two software GPUs, and containers of `vcuda run` that work on them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import socket
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from support.agent.node_agent import AgentNode
from support.product import install
from support.softgpu.softgpu_host import BUILT
from support.waiting import until

# Name, options of the share, options of the workload.
CONTAINERS = (
    (
        "train-llm",
        "--core 30 --memory 40GiB --gpu 0 --policy elastic --core-limit 60",
        "3000 33GiB --every-ms 10",
    ),
    ("serve-7b", "--core 45 --memory 24GiB --gpu 0", "2000 20GiB --every-ms 6"),
    ("notebook-ann", "--core 10 --memory 8GiB --gpu 0", "500 3GiB --every-ms 20"),
    ("embed", "--core 50 --memory 32GiB --gpu 1", "2500 18GiB --every-ms 8"),
    ("sweep-4", "--core 25 --memory 16GiB --gpu 1 --policy weighted", "2000 9GiB --every-ms 12"),
)
# The page has a point of history for each second.
BEFORE_THE_PICTURE_SECONDS = 60
READ_SECONDS = 6.0


class Node:
    """address: of the agent's page."""

    def __init__(self, node: AgentNode, command: str, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/usage"
        self.words = [command, "--config", node.config]
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, share: str, work: str) -> None:
        kernel, memory, *more = work.split()
        busy = ["/mnt/vcuda-workload", "busy", "--seconds", "3600", "--kernel-us", kernel]
        words = [
            *self.words,
            "run",
            "--name",
            name,
            *share.split(),
            "--volume",
            f"{BUILT}:/mnt:ro",
        ]
        command = [*words, "--", *busy, "--allocate", memory, *more]
        quiet = subprocess.DEVNULL
        self._running.append(subprocess.Popen(command, stdout=quiet, stderr=quiet))

    def end(self) -> None:
        """Each container's watcher ends it after its `vcuda run`."""
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()
        listed = [*self.words, "ps", "--quiet"]
        until(lambda: not subprocess.check_output(listed), "the containers' end")

    def top(self, columns: int, lines: int) -> str:
        """The screen of `vcuda top` after some samples, with its SGR sequences."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        process = subprocess.Popen(
            [*self.words, "top"], stdin=theirs, stdout=theirs, env=environment
        )
        os.close(theirs)
        text, deadline = b"", time.monotonic() + READ_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            if select.select([ours], [], [], left)[0]:
                text += os.read(ours, 65536)
        os.write(ours, b"q")
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while os.read(ours, 65536):
                pass
        process.wait(10)
        os.close(ours)
        # Each screen begins at home and ends by clearing what is below.
        return text.decode().rpartition("\x1b[J")[0].rpartition("\x1b[H")[2]


@contextlib.contextmanager
def running() -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        prefix = folder + "/usr"
        install(prefix, folder + "/etc")
        node = AgentNode(Path(folder), prefix, "--gpus", "2", "--memory", "80GiB")
        node.configure(listen=f"127.0.0.1:{port}")
        made = Node(node, prefix + "/bin/vcuda", port)
        try:
            with node.agent():
                for container in CONTAINERS:
                    made.start(*container)
                time.sleep(BEFORE_THE_PICTURE_SECONDS)
                yield made
                made.end()
        finally:
            made.end()
            node.close()
