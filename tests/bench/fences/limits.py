"""The driver's own memory limits: what random sets and kills leave, and what a start costs more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.result import Figure
from bench.starts.ctr import files_in
from engines.hostile.test_bypass_watch import AgentInside
from support.engines.base import Wanted
from support.engines.low_level import RuncV2
from support.engines.mps_containers import shown
from support.host import own_run
from support.product import MIB, Product, asking
from support.softgpu.softgpu_host import SoftGpu
from support.waiting import until
from vcuda_plugin.agent.bypass.driver_limits import DriverLimits
from vcuda_plugin.agent.bypass.process_probe import ProcessProbe, _Counted

EVENTS, MOST, STARTS, WARM_UP = 1000, 8, 40, 3
_GIB = 1 << 30
_GPU = ("--memory", "80GiB", "--driver-version", "615.10")
_SEED = 19
_START_TIMES = 1.05
_ON, _OFF = "auto", "off"


def measure(folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: a container did not start."""
    return [*_kills(folder, say), _starts(say)]


class Cgroups:
    """Containers of a pid namespace and a cgroup each, where the kernel has dmem: as files.

    by: the agent's part that sets limits, which forgets all when it is killed.
    """

    def __init__(self, folder: Path) -> None:
        self.gpu = SoftGpu(folder, *_GPU)
        self.root = folder / "cgroup"
        self._make(self.root)
        (self.root / "cgroup.controllers").write_text("dmem\n")
        self.uuid = self.gpu.smi("--query-gpu=uuid", "--format=csv,noheader").strip()
        self.probe = ProcessProbe(f"{self.gpu.libraries}/libnvidia-ml.so.1", [self.uuid])
        self.live: dict[Path, subprocess.Popen[str]] = {}
        self.by = self.new_agent()

    def new_agent(self) -> DriverLimits:
        return DriverLimits(self.probe.set_limit, self.probe.count)

    def begin(self, name: str) -> Path:
        place = self.root / name
        self._make(place)
        words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "600"]
        process = subprocess.Popen(words, text=True, start_new_session=True)
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        (place / "cgroup.procs").write_text(until(lambda: _text(children)) + "\n")
        self.live[place] = process
        return place

    def end(self, place: Path) -> None:
        process = self.live.pop(place)
        child = os.pidfd_open(int(_text(place / "cgroup.procs")))
        process.kill()
        with contextlib.suppress(ProcessLookupError):  # it may not have asked yet to end too
            signal.pidfd_send_signal(child, signal.SIGKILL)
        os.close(child)
        process.wait()
        shutil.rmtree(place)

    def limit(self, place: Path) -> int:
        """The driver's hard limit; 0: none."""
        device = ctypes.c_void_p()
        nvml, counted = self.probe._nvml, _Counted(str(place).encode())
        nvml.nvmlDeviceGetHandleByUUID(self.uuid.encode(), ctypes.byref(device))
        rc = nvml.nvmlDeviceGetMemoryLimits_v1(device, ctypes.byref(counted))
        return 0 if rc else int(counted.hard_bytes)

    def reserved(self) -> int:
        """What soft limits have left in the cgroup above, in bytes."""
        return sum(int(line.split()[-1]) for line in _text(self.root / "dmem.min").splitlines())

    @staticmethod
    def _make(place: Path) -> None:
        place.mkdir(parents=True)
        for name in ("cgroup.procs", "dmem.max", "dmem.min"):
            (place / name).touch()


def _text(path: str | Path) -> str:
    return Path(path).read_text().strip()


def _kills(folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Containers begin, get other shares, and end at random, and the agent is killed. After each
    event it polls once; then each container has its limit, and nothing else one."""
    chance, node = random.Random(_SEED), Cgroups(folder)
    wanted: dict[tuple[str, str], int] = {}
    wrong = left = kills = refused = 0
    try:
        for number in range(EVENTS):
            event = chance.random()
            if event < 0.1:
                kills += 1
                node.by = node.new_agent()
            elif node.live and (event < 0.4 or len(node.live) == MOST):
                place = chance.choice(list(node.live))
                if chance.random() < 0.5:  # else its cgroup ends before its record
                    del wanted[str(place), node.uuid]
                    refused += bool(node.by.hold(wanted))
                node.end(place)
                refused += bool(node.by.hold(wanted))
                wanted.pop((str(place), node.uuid), None)
            elif node.live and event < 0.6:
                place = chance.choice(list(node.live))
                wanted[str(place), node.uuid] = chance.randint(1, 79) * _GIB
            else:
                place = node.begin(str(number))
                wanted[str(place), node.uuid] = chance.randint(1, 79) * _GIB
            refused += bool(node.by.hold(wanted))
            found = {place: node.limit(place) for place in node.live}
            wrong += sum(found[place] != wanted[str(place), node.uuid] for place in found)
            left += node.reserved() > 0
            if number % 100 == 99:
                say(f"{number + 1} of {EVENTS} events: {len(node.live)} limits")
    finally:
        for place in list(node.live):
            node.end(place)
    note = f"{EVENTS} events, {kills} kills of the agent, {refused} refusals of the driver"
    return [
        Figure("fences: wrong driver limits", wrong + refused, "limits", 0, {}, note),
        Figure("fences: driver limits left", left, "polls with a rest", 0, {}, "where dmem counts"),
    ]


def _starts(say: Callable[[str], None]) -> Figure:
    """create + start by runc with the node agent, with and without the driver's limits."""
    times: dict[str, list[float]] = {_ON: [], _OFF: []}
    with contextlib.ExitStack() as stack:
        own_run.sweep()
        folder = own_run.scratch_folder()
        stack.callback(shutil.rmtree, folder)
        files = files_in(folder)
        nodes = {}
        for setting in times:
            engine = RuncV2(files)
            stack.callback(engine.close)
            product = Product(f"{folder}/{setting}", 1, *_GPU)
            stack.enter_context(_agent(engine, product, setting, f"{folder}/{setting}"))
            nodes[setting] = (engine, product)
        for number in range(STARTS + WARM_UP):
            for setting in random.sample(list(times), len(times)):
                once = _seconds(nodes[setting][0], f"{setting}{number}")
                times[setting] += [once] if number >= WARM_UP else []
            if number % 10 == 0:
                say(f"start with a driver limit: round {number} of {STARTS}")
        for setting, (engine, product) in nodes.items():
            _begin(engine, "last")
            if setting == _ON:
                until(lambda e=engine, p=product: shown(p, e)[0]["driver_limit_bytes"])
            engine.delete("last")
    ratio = statistics.median(one / base for one, base in zip(times[_ON], times[_OFF]))
    name = "fences: start with a driver limit"
    return Figure(name, ratio, "x without one", _START_TIMES, {})


@contextlib.contextmanager
def _agent(engine: RuncV2, product: Product, setting: str, folder: str) -> Iterator[None]:
    with product.on(engine, driver_limits=setting):
        program = f"{product.prefix}/bin/vcuda-node-agent"
        words = [program, "--config", product.config, "--kubelet-dir", folder]
        agent = AgentInside(engine.host.inside(words))
        try:
            agent.await_ready()
            yield
        finally:
            agent.end()


def _seconds(engine: RuncV2, id: str) -> float:
    seconds = _begin(engine, id)
    engine.delete(id)
    return seconds


def _begin(engine: RuncV2, id: str) -> float:
    """The seconds of create + start. Raises RuntimeError: it did not start."""
    share = asking(engine, core=30, memory_bytes=256 * MIB)
    bundle = engine.make_bundle(Wanted(id, ["sleep", "600"], {}, share["annotations"], ()))
    words = ("--bundle", bundle, "--pid-file", f"{bundle}/pid")
    out, err = f"{bundle}/stdout", f"{bundle}/stderr"
    began = time.perf_counter()
    failed = engine.host.run_to_files(engine.command("create", *words, id), out, err, {})
    started = engine.call("start", id)
    seconds = time.perf_counter() - began
    if failed or started.rc:
        raise RuntimeError(f"{Path(err).read_text()}{started.stderr}")
    return seconds
