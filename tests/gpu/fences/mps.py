"""Questions of MPS: what the product takes for granted of a control daemon and its clients.

A private daemon with a pipe directory of its own, and only where the GPU's compute mode is the
default: no setting of the card changes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench.result import Figure
from gpu.machine import Machine, UnmeasuredError

CLIENT = """
import ctypes, json, os
cuda = ctypes.CDLL("libcuda.so.1")
rc, count, context = cuda.cuInit(0), ctypes.c_int(), ctypes.c_void_p()
rc = rc or cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
if not rc:
    cuda.cuDeviceGetAttribute(ctypes.byref(count), 16, 0)  # MULTIPROCESSOR_COUNT
shared = os.listdir("/dev/shm")
print(json.dumps({"rc": rc, "multiprocessors": count.value, "shared": shared}), flush=True)
"""
PERCENT = 30
_CONTROL = "nvidia-cuda-mps-control"
_SECONDS = 20.0


class Daemon:
    """A running daemon with a server. Raises UnmeasuredError: there is none to start, or the mode
    forbids it."""

    options: tuple[str, ...] = ("-multiuser-server",)

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.program = shutil.which(_CONTROL, path=_programs()) or ""
        if not self.program:
            raise UnmeasuredError(f"no {_CONTROL}")
        mode = _compute_mode(machine)
        if mode:
            raise UnmeasuredError(f"the GPU's compute mode is {mode}, not the default")
        self.folder = tempfile.mkdtemp(dir=machine.folder, prefix="mps")
        self.pipes = os.path.join(self.folder, "pipe")
        for name in ("pipe", "log", "alone"):
            os.makedirs(os.path.join(self.folder, name))
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [self.program, "-f", *self.options],
            env=self.environment(self.pipes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (server := self._served()):
            if time.monotonic() - begin > _SECONDS or self.process.poll() is not None:
                self.close()
                raise UnmeasuredError(f"no server in {_SECONDS:.0f} s")
            time.sleep(0.05)
        self.server, self.start_seconds = server, time.monotonic() - begin

    def _served(self) -> int:
        """The server's pid; 0: it is not ready yet."""
        servers = self.say("get_server_list").split()
        if servers and servers[0].isdigit():
            return int(servers[0])
        self.say("start_server -uid 0")  # until the daemon is there
        return 0

    def environment(self, pipes: str, percent: int = 0, partition: str = "") -> dict[str, str]:
        found = self._machine.environment(os.path.join(self._machine.root, "lib"))
        found["CUDA_MPS_PIPE_DIRECTORY"] = pipes
        found["CUDA_MPS_LOG_DIRECTORY"] = os.path.join(self.folder, "log")
        if percent:
            found["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percent)
            # A client sees the server's GPU alone, and counts it from 0.
            found.pop("CUDA_VISIBLE_DEVICES", None)
        if partition:
            found["CUDA_MPS_SM_PARTITION"] = partition
        return found

    def say(self, word: str, pipes: str = "") -> str:
        done = subprocess.run(
            [self.program],
            env=self.environment(pipes or self.pipes),
            input=word + "\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        return done.stdout.strip()

    def client(self, pipes: str, percent: int = 100, partition: str = "") -> Any:
        done = subprocess.run(
            [sys.executable, "-c", CLIENT],
            env=self.environment(pipes, percent, partition),
            stdout=subprocess.PIPE,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
        return json.loads(done.stdout)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        server = getattr(self, "server", 0)
        if server and os.path.exists(f"/proc/{server}"):
            os.kill(server, signal.SIGKILL)


def words(machine: Machine) -> list[Figure]:
    """Raises UnmeasuredError."""
    before = set(os.listdir("/dev/shm"))
    daemon = Daemon(machine)
    try:
        alone = os.path.join(daemon.folder, "alone")
        os.link(os.path.join(daemon.pipes, "control"), os.path.join(alone, "control"))
        client = daemon.client(daemon.pipes)
        whole = client["multiprocessors"]
        part = daemon.client(daemon.pipes, PERCENT)["multiprocessors"]
        narrow = daemon.client(alone, PERCENT)
        told = daemon.say("set_default_active_thread_percentage 90", alone)
        percent = daemon.say("get_default_active_thread_percentage")
        shared = sorted(name for name in set(client["shared"]) - before if _is_of_mps(name))
        listed = machine.nvml()["processes"]
        # The width tells whether it was a client; the words, what the program found there.
        note = f"sees {narrow['multiprocessors']}; told 90 there says '{told}', then has {percent}"
        return [
            Figure("mps.start", daemon.start_seconds * 1e3, "ms", None, {}),
            Figure("mps.multiprocessors", 100 * part / max(1, whole), "%", None, {}, f"of {whole}"),
            Figure("mps.control alone", narrow["rc"], "error of cuInit", 0, {}, note),
            Figure(
                "mps.shared files",
                len(shared),
                "files",
                None,
                {},
                "; ".join([*shared, *_mapped(daemon.server)]),
            ),
            Figure(
                "mps.listed", int(str(daemon.server) in listed), "servers in NVML's list", None, {}
            ),
        ]
    finally:
        daemon.close()


def _is_of_mps(name: str) -> bool:
    return "cuda" in name or "mps" in name


def _mapped(server: int) -> list[str]:
    """The memory without a file, or with one in /dev/shm, that the server has mapped."""
    with open(f"/proc/{server}/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps}
    return sorted(path for path in paths if path.startswith(("/dev/shm/", "/memfd:")))


def _programs() -> str:
    """Where the driver's programs are: the software GPU's, where that is asked."""
    root = os.environ.get("SOFTGPU_ROOT", "")
    return f"{root}/usr/bin" if root else "/usr/bin:/usr/local/nvidia/bin:/bin"


def _compute_mode(machine: Machine) -> int:
    script = (
        "import pynvml as n; n.nvmlInit();"
        f"print(n.nvmlDeviceGetComputeMode(n.nvmlDeviceGetHandleByUUID({machine.uuid!r})))"
    )
    out, _ = machine.start(sys.executable, "-c", script).communicate(timeout=60)
    return int(out)
