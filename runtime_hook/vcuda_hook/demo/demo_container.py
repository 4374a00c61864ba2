"""One container of ``vcuda demo``: its workload and its report."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
from typing import Any

from vcuda_oci.model.errors import VcudaError

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
GUEST_FOLDER = "/demo"
GUEST_WORKLOAD = "/usr/local/bin/vcuda-workload"
KERNEL_US = 2000
START_SECONDS = 30

# The workload begins when `go` appears. nvidia-smi runs in the middle, while `alloc` still holds
# its memory. B allocates all its memory only after the measurement, so that it has something to
# lose while A hits its limit. Four kernels are in flight at once: waiting for each would leave the
# GPU idle while the host wakes up.
_SCRIPT = f"""
cd {GUEST_FOLDER}/$1 || exit
vcuda-workload busy --seconds $2 --kernel-us {KERNEL_US} --async 4 \\
  --allocate $3 --wait-file ../go >busy &
busy=$!
touch ready
while [ ! -e ../go ]; do sleep 0.05; done
if [ "$4" = during ]; then
  vcuda-workload alloc --chunk 64MiB --hold $2 >alloc.new &
  alloc=$!
  while [ ! -s alloc.new ]; do kill -0 $alloc || exit; sleep 0.05; done
  cp alloc.new alloc.part && mv alloc.part alloc
fi
sleep 1
nvidia-smi >smi.new 2>&1; mv smi.new smi
wait $busy || exit
mv busy busy.done
[ "$alloc" ] || vcuda-workload alloc --chunk 64MiB >alloc
[ -z "$alloc" ] || kill $alloc 2>/dev/null || true
"""


class Container:
    """A share and its workload. core in percent, memory and held in bytes.

    held: what the busy process keeps allocated. allocates_during: asks for all its memory while
    both are busy; otherwise afterwards.
    """

    def __init__(
        self, name: str, core: int, memory: int, held: int, allocates_during: bool
    ) -> None:
        self.name, self.core, self.memory, self.held = name, core, memory, held
        self.id = f"demo-{name}-{os.getpid()}"
        self.allocates_during = allocates_during
        self.folder = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        vcuda: list[str],
        folder: str,
        gpu_uuid: str,
        workload: str,
        seconds: float,
        low_level: str,
    ) -> None:
        self.folder = f"{folder}/{self.name}"
        os.mkdir(self.folder)
        script = [str(seconds), str(self.held), "during" if self.allocates_during else "after"]
        command = [
            *request(vcuda, self.core, self.memory, gpu_uuid),
            "--runtime",
            low_level,
            "--name",
            self.id,
            "--volume",
            f"{folder}:{GUEST_FOLDER}",
            "--volume",
            f"{workload}:{GUEST_WORKLOAD}:ro",
            "--workdir",
            "/",
            "--",
            "sh",
            "-c",
            _SCRIPT,
            "demo",
            self.name,
            *script,
        ]
        with open(self.folder + "/log", "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C at the terminal is for the demo, which ends its containers itself.
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def wait_for(self, name: str, seconds: float) -> str:
        """The content of a file that the container writes. Raises VcudaError: the container ended
        before.
        """
        path = f"{self.folder}/{name}"
        deadline = time.monotonic() + seconds
        while not os.path.exists(path):
            if self._process is None or self._process.poll() is not None:
                raise self._failed(f"ended before its '{name}'")
            if time.monotonic() > deadline:
                raise self._failed(f"has no '{name}' after {seconds:.0f} s")
            time.sleep(0.02)
        return _read(path)

    def wait(self, seconds: float) -> None:
        """Wait for the container's end. Raises VcudaError: a non-zero exit code, or a timeout."""
        assert self._process is not None  # noqa: S101
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise self._failed(f"runs still after {seconds:.0f} s") from None
        if status != 0:
            raise self._failed(f"ended with {status}")

    def report(self, name: str) -> Any:
        """The workload's output, as JSON. Raises VcudaError: there is none."""
        try:
            return json.loads(_read(f"{self.folder}/{name}"))
        except (OSError, ValueError) as error:
            raise self._failed(f"no report in '{name}': {error}") from error

    def kill(self) -> None:
        """End the container if it runs; the watcher of its `vcuda run` ends its processes."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def _failed(self, what: str) -> VcudaError:
        last = _read(self.folder + "/log").strip().rpartition("\n")[2]
        hint = f"look at its last words: {last or 'none'}"
        return VcudaError(what, f"container {self.name}", hint)


def request(vcuda: list[str], core: int, memory: int, gpu_uuid: str) -> list[str]:
    """The `vcuda run` of a share, up to its own options."""
    return [*vcuda, "run", "--core", str(core), "--memory", str(memory), "--gpu", gpu_uuid]


def _read(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def _die_with_parent() -> None:
    """Have the kernel kill this process when the demo ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
