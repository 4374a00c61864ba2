"""The GPU that is asked, with the driver alone and through the shim.

The software GPU serves as well, where SOFTGPU_ROOT and the loader's path name one: the same
questions then run without hardware, and their answers say nothing of any.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from shim.conftest import LIBRARIES
from support.gpu import guest

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")

# As enter_guest.c, but with the rest of /usr/local in its place: drivers and Python packages live
# there on many machines.
ENTER = """
set -e
mkdir -p "$1/usr-local"
mount --rbind /usr/local "$1/usr-local"
mount -t tmpfs none /usr/local
for there in "$1"/usr-local/*; do
  here=/usr/local/${there##*/}
  [ "$here" != /usr/local/vcuda ] || continue
  if [ -L "$there" ]; then cp -P "$there" "$here"
  elif [ -d "$there" ]; then mkdir "$here"; mount --rbind "$there" "$here"
  fi
done
mkdir -p /usr/local/vcuda/driver
mount --bind "$1/driver" /usr/local/vcuda/driver
for page in limits usage; do
  : > /usr/local/vcuda/$page
  mount --bind "$1/$page" /usr/local/vcuda/$page
done
mount -o remount,bind,ro /usr/local/vcuda/limits
shift
exec "$@"
"""

# Where the loader finds the driver, whatever its settings are.
FIND = """
import ctypes
for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
    ctypes.CDLL(name)
    with open("/proc/self/maps") as maps:
        print(next(line.split()[-1] for line in maps if name.split(".")[0] + ".so" in line))
"""

NVML = """
import json, sys
import pynvml
pynvml.nvmlInit()
device = (pynvml.nvmlDeviceGetHandleByUUID(sys.argv[1]) if sys.argv[1]
          else pynvml.nvmlDeviceGetHandleByIndex(0))
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
memory = pynvml.nvmlDeviceGetMemoryInfo(device)
print(json.dumps({
    "uuid": pynvml.nvmlDeviceGetUUID(device),
    "name": pynvml.nvmlDeviceGetName(device),
    "driver": pynvml.nvmlSystemGetDriverVersion(),
    "memory_bytes": memory.total,
    "used_bytes": memory.used,
    "free_bytes": memory.free,
    "processes": {process.pid: process.usedGpuMemory for process in processes},
}))
"""


class UnmeasuredError(Exception):
    """A question that this machine can't answer; the text says why."""


class Card(NamedTuple):
    name: str
    driver: str
    uuid: str
    memory_bytes: int
    software: bool
    date: str  # ISO 8601
    how: str = ""  # such as "; windows of 6 s, 5 rounds"


class Container(guest.Guest):
    enter = ENTER


class Machine:
    """The driver that the loader finds. uuid: which GPU; None: the first.

    Raises UnmeasuredError: no driver, or no GPU behind it.
    """

    def __init__(self, folder: str, uuid: str | None) -> None:
        self.folder = folder
        self.root = os.path.join(folder, "root")
        self.behind = self._link_driver()
        self.containers = self.asked = 0
        self.uuid = uuid or ""
        facts = self.nvml()
        self.uuid = facts["uuid"]
        self.card = Card(
            facts["name"],
            facts["driver"],
            facts["uuid"],
            facts["memory_bytes"],
            "SOFTGPU_ROOT" in os.environ,
            datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        )
        self.others = len(facts["processes"])

    def _link_driver(self) -> str:
        """A driver root that names the host's two libraries; returns their folder."""
        found = subprocess.run([sys.executable, "-c", FIND], capture_output=True, text=True)
        if found.returncode:
            raise UnmeasuredError(f"no NVIDIA driver: {found.stderr.strip().splitlines()[-1]}")
        libraries = os.path.join(self.root, LIBRARIES)
        os.makedirs(libraries)
        for path in found.stdout.split():
            name = os.path.basename(path)
            os.symlink(path, os.path.join(libraries, name))
            soname = name.split(".so")[0] + ".so.1"
            if soname != name:
                os.symlink(path, os.path.join(libraries, soname))
        return os.path.dirname(found.stdout.split()[0])

    def environment(self, libraries: str) -> dict[str, str]:
        made = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            # The driver looks for the rest of its libraries itself.
            "LD_LIBRARY_PATH": f"{libraries}:{self.behind}",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }
        if "SOFTGPU_ROOT" in os.environ:
            made["SOFTGPU_ROOT"] = os.environ["SOFTGPU_ROOT"]
        elif self.uuid:
            made["CUDA_VISIBLE_DEVICES"] = self.uuid
        return made

    def nvml(self) -> Any:
        """The GPU's facts, and what NVML says that each process holds, from outside."""
        done = self.start(sys.executable, "-c", NVML, self.uuid)
        out, err = done.communicate(timeout=60)
        if done.returncode:
            raise UnmeasuredError(f"NVML does not answer: {err.strip().splitlines()[-1]}")
        return json.loads(out)

    def library(self, name: str) -> str:
        """The driver's own, such as of libcuda."""
        return os.path.join(self.root, LIBRARIES, f"{name}.so.1")

    def start(self, *command: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """COMMAND on the driver alone."""
        return subprocess.Popen(
            command,
            env=self.environment(os.path.join(self.root, LIBRARIES)),
            text=True,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def container(
        self, core_percent: int = 100, memory_bytes: int = 0, calls_ask: bool = False
    ) -> Container:
        """A new one with so much of the GPU; without MEMORY_BYTES, all of its memory."""
        self.containers += 1
        slice_of = guest.share(self.uuid, memory_bytes or self.card.memory_bytes, core_percent)
        folder = os.path.join(self.folder, f"container-{self.containers}")
        os.makedirs(folder)
        return Container(folder, self.root, [slice_of], calls_ask=calls_ask)

    def start_in(
        self, container: Container, *command: str, stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        libraries = os.path.join(container.folder, "lib")
        return container.start(*command, env=self.environment(libraries), stdin=stdin)

    def compiled(self, source: str) -> str:
        return compiled(source, self.folder)

    def ask(self, program: str, *commands: Sequence[str]) -> list[Any]:
        """What PROGRAM answers to each of the commands at once, on the driver alone.

        Its last argument is the file that it begins with.
        """
        self.asked += 1
        start_file = os.path.join(self.folder, f"ask-{self.asked}")
        running = [self.start(program, *command, start_file) for command in commands]
        try:
            for process in running:
                wait_until_ready(process)
            with open(start_file, "w", encoding="ascii"):
                pass
            return [answer(process) for process in running]
        finally:
            for process in running:
                process.kill()


def compiled(source: str, folder: str) -> str:
    """A C client, linked against the shim as programs are with -lcuda."""
    program = os.path.join(folder, os.path.basename(source).removesuffix(".c"))
    if not os.path.exists(program):
        headers = os.path.join(
            os.path.dirname(guest.PYTHON), "..", "lib",
            f"python{sys.version_info.major}.{sys.version_info.minor}",
            "site-packages", "nvidia", "cu13", "include",
        )  # fmt: skip
        command = ["gcc", "-std=gnu11", "-O2", "-pthread", "-isystem", headers, source]
        subprocess.run([*command, "-o", program, guest.SHIM, "-ldl"], check=True)
    return program


def answer(process: subprocess.Popen[str]) -> Any:
    """The last line of JSON that PROCESS says.

    Raises UnmeasuredError: it failed.
    """
    out, err = process.communicate(timeout=600)
    if process.returncode:
        last = (err.strip() or f"exit {process.returncode}").splitlines()[-1]
        raise UnmeasuredError(last)
    return json.loads(out.strip().splitlines()[-1])


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Returns with the first line that PROCESS says.

    Raises UnmeasuredError: it ended without one.
    """
    assert process.stdout
    if not process.stdout.readline():
        answer(process)
