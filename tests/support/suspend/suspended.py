"""Containers with processes on the software GPU, in cgroups of their own, and `vcuda` for them.

A container here is a cgroup, processes in it and a record: no engine, so that a round takes
milliseconds. Real engines: tests/engines/suspend/test_suspend.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import compiled
from support.files import write
from support.host import cgroups
from support.ledger.samples import GIB, record
from support.softgpu.softgpu_host import BUILT, REPOSITORY, SoftGpu
from support.waiting import until
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.start import apply_share
from vcuda_oci.system import settings_file

MIB = 1 << 20

CUDA_HEADERS = f"{sysconfig.get_path('purelib')}/nvidia/cu13/include"


class Box:
    """One container: its processes, and what they answer."""

    def __init__(self, node: Node, id: str, count: int, each: int) -> None:
        self.node, self.id, self.each = node, id, each
        self.group = f"/vcuda-suspend:{os.getpid()}:{id}"
        for root in cgroups.hierarchies():
            os.makedirs(root + self.group, exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if os.path.exists(f"{root}/{name}") and not is_v2(root):
                    write(f"{root}{self.group}/{name}", Path(f"{root}/{name}").read_text())
        self.processes = [self.start() for _ in range(count)]
        self.bystanders: list[subprocess.Popen[str]] = []
        self.node.runtime.set_state(id, "running", pid=self.processes[0].pid)

    def start(self) -> subprocess.Popen[str]:
        """Start one more process, and wait until it holds its memory."""
        process = self.start_program([self.node.holder, str(self.each)])
        answer_of(process)
        return process

    def start_program(self, command: list[str]) -> subprocess.Popen[str]:
        join = "for folder; do echo $$ > $folder/cgroup.procs || exit 1; done"
        folders = [root + self.group for root in cgroups.hierarchies()]
        script = f'command=$1; shift; {join}; eval "exec $command"'
        return self.node.gpu.popen(["sh", "-c", script, "sh", quoted(command), *folders])

    def start_idle(self) -> subprocess.Popen[str]:
        """Start a process without CUDA, and wait until it is in the cgroup."""
        process = self.start_program(["sleep", "100000"])
        name = Path(f"/proc/{process.pid}/comm")
        until(lambda: name.read_text() == "sleep\n")
        return process

    def limit_memory(self, free: int) -> str:
        """Let it have so many bytes more of the host's memory; return its cgroup's folder."""
        for root in cgroups.hierarchies():
            folder = root + self.group
            for used, most in (
                ("memory.current", "memory.max"),
                ("memory.usage_in_bytes", "memory.limit_in_bytes"),
            ):
                if os.path.exists(f"{folder}/{most}"):
                    held = int(Path(f"{folder}/{used}").read_text())
                    write(f"{folder}/{most}", str(held + free))
                    return folder
        raise AssertionError("no memory controller")

    def works(self, process: subprocess.Popen[str]) -> bool:
        """Whether a process answers, with its memory as it left it."""
        assert process.stdin
        process.stdin.write("on\n")
        process.stdin.flush()
        return bool(answer_of(process))

    def all_work(self) -> bool:
        return all(self.works(process) for process in self.processes)

    def end(self) -> None:
        for process in [*self.processes, *self.bystanders]:
            process.kill()
            process.communicate()
        cgroups.remove(self.group)


class Node:
    """A host with one software GPU."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.gpu = SoftGpu(folder, *(options or ("--memory", "8GiB", "--gpus", "1")))
        # Its processes: clients/hold_memory.c.
        cuda = ("-isystem", CUDA_HEADERS, "-Wl,--no-as-needed", f"-L{BUILT}", "-l:libcuda.so.1")
        self.holder = compiled.program(str(folder), "hold_memory", *cuda)
        self.runtime = FakeRuntime(folder / "runc")
        self.ledger = Ledger(f"{folder}/state")
        self.config = write(
            f"{folder}/config.toml",
            f'state-dir = "{folder}/state"\ndriver-root = "{self.gpu.root}"\n',
        )
        self.settings = settings_file.load_named(self.config)
        self.facts: Host = apply_share.host_of(self.settings)
        self.boxes: list[Box] = []

    def kinds(self, id: str) -> list[str]:
        """The kinds of a container's events, in their order."""
        return [event["kind"] for event in events.read(self.ledger.state_dir, id)]

    def box(
        self,
        id: str,
        count: int = 2,
        each: int = 64 * MIB,
        memory: int = 4 * GIB,
        core: int = 50,
        gpu: int = 0,
    ) -> Box:
        share = GpuShare(self.facts.gpus[gpu].uuid, memory, core)
        allocation = record(id, shares=[share], runtime=self.runtime.words)
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))
        made = Box(self, id, count, each)
        self.boxes.append(made)
        return made

    def vcuda(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        done = self.start_vcuda(*words, **options)
        out, err = done.communicate(timeout=120)
        return subprocess.CompletedProcess(words, done.returncode, out, err)

    def command(self, *words: str) -> list[str]:
        """`vcuda` of the sources, with these words."""
        places = [str(REPOSITORY / each) for each in ("oci", "runtime_hook")]
        program = f"import sys; sys.path[:0] = {places}; from vcuda_hook.cli.main import main"
        run = f"{program}; sys.exit(main())"
        return [sys.executable, "-c", run, "--config", self.config, *words]

    def start_vcuda(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    def record(self, id: str) -> Allocation:
        found = self.ledger.get(id)
        assert found
        return found

    def step(self, id: str) -> str | None:
        """The step in the record; None: not suspended. The page must agree."""
        held = self.record(id).suspension
        with open(f"{self.ledger.containers}/{id}/limits", "rb") as file:
            page = page_reader.read_limits(file.read())
        assert (page.suspended == layout.AWAKE) == (held is None)
        return held.step if held else None

    def used(self) -> int:
        """Bytes in use on the GPU, by NVML."""
        command = ["--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return int(self.gpu.smi(*command)) * MIB

    def end(self) -> None:
        for box in self.boxes:
            box.end()


def quoted(command: list[str]) -> str:
    return " ".join("'" + word.replace("'", "'\\''") + "'" for word in command)


def is_v2(root: str) -> bool:
    return os.path.exists(root + "/cgroup.controllers")


def answer_of(process: subprocess.Popen[str]) -> Any:
    """The next line that a process writes; fails with its errors if it has ended."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        assert process.stderr
        raise AssertionError(f"ended with {process.wait()}: {process.stderr.read()}")
    return json.loads(line)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.end()
