"""Run loads in containers in virtual time, and judge what each got of the GPU.

work    what the GPU itself counts: the time in which a kernel of the container ran
held    what the turn keeper counts: the container's turns. Without turns it is the work
gap     how long the load itself left the GPU idle between its kernels
lost    what the containers were entitled to, less work and gaps in their turns

All are parts of the window, which begins a second after the loads and lasts ten seconds, or two
hundred of the longest kernel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from shim.policy_node import PolicyNode
from support.files import ROOT
from support.gpu.guest import BUILD, PYTHON, WORKLOAD, Guest
from support.shares import sampler
from support.shares.loads import Load
from support.softgpu.virtual_time import Clock, answer

SOFTGPU = os.path.join(BUILD, "softgpu", "softgpu")
KEEPER = os.path.join(BUILD, "turns", "vcuda-turn-keeper")
SOURCES = os.pathsep.join(os.path.join(ROOT, part) for part in ("oci", "runtime_hook", "plugin"))
WARMING_S = 1.0
WINDOW_S = 10.0
KERNELS = 200
MOST_LATE_NS = 100_000
# By name, the options of `softgpu create`.
MODELS: dict[str, list[str]] = {
    "default": [],
    "slice 0.5 ms": ["--slice", "500us"],
    "slice 30 ms": ["--slice", "30ms"],
    "no preemption": ["--no-preemption"],
    "switch 500 us": ["--switch-cost", "500us"],
    "kind": ["--clock", "kind"],
}


@dataclasses.dataclass(frozen=True)
class Tenant:
    """A container: its core in percent, its load (None: it does nothing), its policy's words."""

    core: int
    load: Load | None
    words: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Got:
    """What a container got, as parts of the window; report: its workload's last line."""

    held: float
    work: float
    waited: float
    gap: float
    report: dict[str, Any]

    @property
    def share(self) -> float:
        """What is judged: the turns, or the work of a container that had the GPU alone."""
        return max(self.held, self.work)

    @property
    def used(self) -> float:
        """Work, and the gaps of the load that fell into its turns."""
        return self.work + min(self.gap, max(0.0, self.held - self.work))


@dataclasses.dataclass(frozen=True)
class Outcome:
    """switching, idle: parts of the window; words: how often the keeper wrote one; wakes: how often
    its thread of this GPU ran; errors: what it printed; said: what each script printed;
    keeper_survived: the last one, until it was asked to end."""

    tenants: list[Got]
    window_s: float
    switching: float
    idle: float
    words: int
    wakes: int
    errors: str
    said: list[str]
    keeper_survived: bool

    def lost(self, entitled: float) -> float:
        """The part of the GPU that containers with work did not get; `entitled`: their sum."""
        return max(0.0, min(1.0, entitled) - sum(got.used for got in self.tenants))


def window_of(tenants: Sequence[Tenant]) -> float:
    longest = max((one.load.longest_s for one in tenants if one.load), default=0.0)
    return max(WINDOW_S, KERNELS * longest)


@contextlib.contextmanager
def gpu(options: Sequence[str], memory: str = "16GiB") -> Iterator[tuple[str, str]]:
    """A folder, and in it the root of a new software GPU."""
    folder = tempfile.mkdtemp(prefix="shares", dir="/dev/shm")
    root = os.path.join(folder, "root")
    command = [SOFTGPU, "create", root, "--gpus", "1", "--memory", memory]
    try:
        subprocess.run(
            [*command, "--bus-rate", "1GiB/s", *options], check=True, stdout=subprocess.DEVNULL
        )
        yield folder, root
    finally:
        subprocess.run([SOFTGPU, "destroy", root], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def judge(
    options: Sequence[str],
    tenants: Sequence[Tenant],
    *,
    window_s: float = 0.0,
    arbiter: bool = False,
    bare: bool = False,
    warming_s: float = WARMING_S,
    scripts: Sequence[str] = (),
    keepers: int = 1,
    without: str = "",
    program: str = KEEPER,
) -> Outcome:
    """Run the tenants' loads together. options: of `softgpu create`.

    arbiter: grants rates beside them. bare: on the driver alone, without shim and keeper.
    warming_s: when the window begins. scripts: Python programs that run in the same virtual time;
    their argument is a JSON object with the first keeper's pid, the state folder, and for each
    tenant its pid and the paths of its pages. A load that a script kills has no report.
    keepers: turn keepers; each further one waits until the one before has ended. without: a call
    that the keepers' kernel lacks. program: another build of the keeper.
    """
    window_s = window_s or window_of(tenants)
    with contextlib.ExitStack() as stack:
        folder, root = stack.enter_context(gpu(options))
        node = PolicyNode(os.path.join(folder, "node"), root)
        guests = [
            node.container(core=str(one.core), **dict(one.words)) for one in tenants if not bare
        ]
        busy = [(at, one.load) for at, one in enumerate(tenants) if one.load]
        count = 0 if bare else keepers
        processes = len(busy) + 1 + count + arbiter + len(scripts)
        clock = Clock(pathlib.Path(folder), processes)
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        keeping = [
            stack.enter_context(_keeper(clock, node.state_dir, errors, without, program))
            for _ in range(count)
        ]
        moments = [warming_s, warming_s + window_s]
        started: dict[int, subprocess.Popen[str]] = {}
        stack.callback(_end, started)
        for at, load in busy:
            guest = None if bare else guests[at]
            # It ends after the last sample: its end wakes the keeper.
            started[at] = _start(clock, guest, root, load, moments[1] + 0.01)
        pages = [guest.limits for guest in guests]
        sampling = _sampler(clock, root, moments, pages)
        started[-1] = sampling
        given = {
            "keeper": keeping[0].pid if keeping else 0,
            "state": node.state_dir,
            "root": root,
            "pids": [started[at].pid if at in started else 0 for at in range(len(tenants))],
            "limits": pages,
            "usage": [guest.usage for guest in guests],
        }
        for number, script in enumerate(scripts):
            started[-2 - number] = _script(clock, script, given)
        if arbiter:
            stack.enter_context(node.arbiter(clock))
        first, last = answer(sampling)
        reports = {at: _report(process) for at, process in started.items() if at >= 0}
        pids = {at: process.pid for at, process in started.items()}
        said = []
        for number in range(len(scripts)):
            process = started.pop(-2 - number)
            process.kill()
            out, err = process.communicate()
            assert not err, err
            said.append(out)
        survived = bool(keeping) and keeping[-1].poll() is None
        for keeper in keeping:
            keeper.send_signal(signal.SIGTERM)
            keeper.wait(120)
        errors.seek(0)
        return _outcome(tenants, (first, last), reports, pids, errors.read(), said, survived)


def _report(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=300)
    if process.returncode == -signal.SIGKILL:
        return {"gap_seconds": 0.0, "waits": 0, "wall_seconds": 1.0}
    assert process.returncode == 0, err
    return json.loads(out)


def _script(clock: Clock, script: str, given: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        clock.command(PYTHON, "-c", script, json.dumps(given)),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextlib.contextmanager
def _keeper(
    clock: Clock, state_dir: str, errors: Any, without: str, program: str
) -> Iterator[subprocess.Popen[Any]]:
    process = subprocess.Popen(
        clock.command(program, state_dir, str(os.getpid()), without=without),
        env={"PATH": os.environ["PATH"]},
        stderr=errors,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _start(
    clock: Clock, guest: Guest | None, root: str, load: Load, seconds: float
) -> subprocess.Popen[str]:
    command = [WORKLOAD, "busy", "--seconds", str(seconds), *load.options()]
    if guest:
        return guest.start(*clock.command(*command))
    libraries = os.path.join(root, "usr", "lib", "x86_64-linux-gnu")
    return subprocess.Popen(
        clock.command(*command),
        env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": libraries, "SOFTGPU_ROOT": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _sampler(
    clock: Clock,
    root: str,
    moments: Sequence[float],
    pages: Sequence[str],
) -> subprocess.Popen[str]:
    words = [SOFTGPU, root, str(clock.path), ",".join(map(str, moments)), *pages]
    return subprocess.Popen(
        clock.command(PYTHON, "-S", sampler.__file__, *words),
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.path.join(ROOT, "oci"),
            "SOFTGPU_ROOT": root,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _end(started: dict[int, subprocess.Popen[str]]) -> None:
    for process in started.values():
        process.kill()
        process.communicate()


def _account(sample: Any) -> Any:
    gpu = sample["account"]["gpus"][0]
    late_ns = sample["account_ns"] - gpu["clock_ns"]
    assert 0 <= late_ns < MOST_LATE_NS, f"the GPU's account is {late_ns} ns older than its sample"
    return gpu


def _outcome(
    tenants: Sequence[Tenant],
    samples: tuple[Any, Any],
    reports: dict[int, Any],
    pids: dict[int, int],
    errors: str,
    said: list[str],
    survived: bool,
) -> Outcome:
    first, last = samples
    window = last["now"] - first["now"]
    before, after = _account(first), _account(last)
    counted_ns = after["clock_ns"] - before["clock_ns"]
    works = [
        {one["pid"]: one["held_ns"] for one in (*sample["processes"], *sample["ended"])}
        for sample in (before, after)
    ]
    found = []
    for at, tenant in enumerate(tenants):
        report, work, gap = reports.get(at, {}), 0.0, 0.0
        if tenant.load:
            pid = pids[at]
            work = (works[1].get(pid, 0) - works[0].get(pid, 0)) / counted_ns
            slept_s, waits = report["gap_seconds"], report["waits"]
            gap = tenant.load.gap_s(waits, slept_s) / report["wall_seconds"]
        pages = [sample["pages"][at] if sample["pages"] else {} for sample in samples]
        held, waited = (
            (pages[1].get(key, 0) - pages[0].get(key, 0)) / window / 1e9
            for key in ("held_ns", "waited_ns")
        )
        found.append(Got(held, work, waited, gap, report))
    words = sum(
        two["words"] - one["words"] for one, two in zip(first["pages"], last["pages"], strict=True)
    )
    return Outcome(
        found,
        window,
        (after["switch_ns"] - before["switch_ns"]) / counted_ns,
        (after["idle_ns"] - before["idle_ns"]) / counted_ns,
        words,
        last["wakes"] - first["wakes"],
        errors,
        said,
        survived,
    )


def main() -> int:
    """``python -m support.shares.judge MODEL CORE:LOAD ...``: one run, for a person."""
    from support.shares import loads

    named = {name.lower(): value for name, value in vars(loads).items() if isinstance(value, Load)}
    tenants = []
    for words in sys.argv[2:]:
        core, name, *policy = words.split(":")
        more = tuple(tuple(word.split("=")) for word in policy)
        tenants.append(Tenant(int(core), named[name], more))  # type: ignore[arg-type]
    outcome = judge(MODELS[sys.argv[1]], tenants)
    for got in outcome.tenants:
        print(
            f"held {got.held:.4f} work {got.work:.4f} waited {got.waited:.4f} gap {got.gap:.4f}"
            f" {got.report}"
        )
    entitled = sum(one.core for one in tenants) / 100
    print(
        f"lost {outcome.lost(entitled):.4f} switching {outcome.switching:.4f}"
        f" idle {outcome.idle:.4f} words {outcome.words} wakes {outcome.wakes}"
    )
    print(outcome.errors, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
