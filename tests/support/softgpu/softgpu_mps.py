"""An MPS control daemon on a software GPU's driver root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from support.softgpu.softgpu_host import SoftGpu
from support.waiting import until

# Programs of clients. One takes all memory that it can, and says how wide its GPU is; one has a
# kernel run when a line is written to it; one says how cuInit answers.
LIMITED = """
start()
most = 0
while cuda.cuMemAlloc(1 << 20)[0] == 0:
    most += 1
say(mib=most, width=ok(cuda.cuDeviceGetAttribute(
    cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0)))
"""
SPINS = """
start()
function = kernel(b"spin")
print(1, flush=True)
sys.stdin.readline()
spin(function, 1000)
"""
INIT = "say(rc=int(cuda.cuInit(0)[0]))"


class ControlDaemon:
    """A running daemon, with pipe and log directories of its own below `folder`."""

    def __init__(self, gpu: SoftGpu, folder: Path, *options: str) -> None:
        self._gpu = gpu
        self._places = {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        }
        started = self.control("-d", *options)
        # Version 3 says where clients find it.
        assert started.returncode == 0 and started.stdout.count("\n") == ("-p" in options), started
        self.pid = int((folder / "pipe/nvidia-cuda-mps-control.pid").read_text())

    def control(self, *options: str, lines: str = "") -> subprocess.CompletedProcess[str]:
        program = self._gpu.root / "usr/bin/nvidia-cuda-mps-control"
        environment = {**self._gpu.environment(), **self._places}
        return subprocess.run(
            [program, *options],
            input=lines,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )

    def say(self, word: str) -> str:
        """What the daemon prints when it is told so."""
        return self.control(lines=word + "\n").stdout

    def verb(self, command: str) -> str:
        """What a command of version 3 prints; without the end of the line."""
        done = self.control(*command.split())
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    @contextlib.contextmanager
    def variables(
        self, percent: str = "", pinned: str = "", below: str = "", partition: str = ""
    ) -> Iterator[None]:
        """While the block runs, new processes are clients of the daemon. below: a server of version
        3, or a namespace "SERVER/NAME". partition: of the GPU's multiprocessors."""
        names = dict(self._places)
        names["CUDA_MPS_PIPE_DIRECTORY"] += below and f"/{below}"
        if percent:
            names["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = percent
        if pinned:
            names["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = pinned
        if partition:
            names["CUDA_MPS_SM_PARTITION"] = partition
        os.environ.update(names)
        try:
            yield
        finally:
            for name in names:
                del os.environ[name]

    def close(self) -> None:
        """Raises TimeoutError: the daemon does not end."""
        self.say("quit")
        with open(self._places["CUDA_MPS_PIPE_DIRECTORY"] + "/control_lock") as lock:
            until(lambda: _is_free(lock))


def _is_free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
