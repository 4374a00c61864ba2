"""Rounds in which a program that suspends, moves or drains, its worker or a target is killed.


After each round the node agent repairs, then a verb of the command. Every process of the container
must be at work with its memory, or all must be off the GPU and come back with it; what its own user
has locked or checkpointed must come back to just that. The container may open the nodes of its own
GPU only, and a drain that was cut short is ended, then undone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support import compiled
from support.suspend.suspended import Box, Node
from vcuda_hook.checkpoint import driver_worker, steps
from vcuda_hook.checkpoint.worker import Worker
from vcuda_hook.drain import drain, rebalance
from vcuda_hook.suspend import control, elsewhere, repairs
from vcuda_hook.suspend.places import library_of, quiet
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.liveness import start_time
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules

# As in clients/faulty_driver.c, from 1 on.
HARMS = (
    "both before", "both after", "parent before", "parent after", "worker before",
    "worker after", "target before", "target after", "refuse", "refuse after",
)  # fmt: skip
_PLAN = struct.Struct("=III")
_SECONDS = 60.0


@dataclass
class Outcomes:
    """stuck: rounds after which a process was neither at work nor able to come back. lost: rounds
    after which memory was not as its process left it, or a process had died that nothing killed.
    """

    rounds: int = 0
    killed: int = 0
    stuck: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class Nodes:
    """A file for each GPU that a container may open; in the place of relocation.change_nodes, since
    the processes are the host's.

    may_enter: False: as in the node agent, which may not enter containers.
    """

    def __init__(self, folder: str, own: str) -> None:
        os.makedirs(folder)
        self.folder, self.may_enter = folder, True
        self._allow(own)

    def change(
        self, record: Allocation, facts: Host, allowed: Sequence[str], denied: Sequence[str]
    ) -> None:
        if not self.may_enter:
            raise VcudaError("may not enter", record.id, "")
        for uuid in allowed:
            self._allow(uuid)
        for uuid in denied:
            if os.path.exists(f"{self.folder}/{uuid}"):
                os.unlink(f"{self.folder}/{uuid}")

    def _allow(self, uuid: str) -> None:
        os.close(os.open(f"{self.folder}/{uuid}", os.O_CREAT | os.O_WRONLY))

    def open(self) -> set[str]:
        return set(os.listdir(self.folder))


@contextlib.contextmanager
def driver(facts: Host) -> Iterator[Worker]:
    """The driver without faults, in a process that holds no lock."""
    with open(os.devnull) as none, Worker(library_of(facts), none.fileno()) as worker:
        yield worker


def states_of(box: Box, pids: Sequence[int]) -> dict[int, int]:
    """The states of processes, by pid, as the driver says."""
    with driver(box.node.facts) as worker:
        return states_by(worker, pids)


def states_by(worker: Worker, pids: Sequence[int]) -> dict[int, int]:
    found = worker.states({pid: start_time(pid) for pid in pids}, time.monotonic() + 10)
    return {pid: found.get(pid, driver_worker.NO_CUDA) for pid in pids}


def by_user(box: Box, process: subprocess.Popen[str], *calls: str) -> None:
    """Make calls of the driver for a process of the container, as cuda-checkpoint does."""
    started = {process.pid: start_time(process.pid)}
    with driver(box.node.facts) as worker:
        for call in calls:
            (answer,) = worker.call(call, started, [process.pid], time.monotonic() + 10).values()
            assert answer == (driver_worker.SUCCESS, steps.AFTER[call]), call


def left_in(box: Box, state: int) -> int:
    """The pid of one more process, which its user has locked or checkpointed."""
    process = box.start()
    box.bystanders.append(process)
    calls = (steps.LOCK, steps.CHECKPOINT)
    by_user(box, process, *calls[: 1 if state == steps.LOCKED else 2])
    return process.pid


class Kills:
    """A container on a node, and the driver that does harm."""

    def __init__(
        self, node: Node, folder: Path, processes: int = 3, left: Sequence[int] = ()
    ) -> None:
        """left: states in which the user of further processes has left them."""
        self.node, self.count = node, processes
        self.box: Box = node.box("box", processes, each=1 << 20)
        self.left = {left_in(self.box, state): state for state in left}
        # The container's first process is none of those that are killed.
        first = self.box.start_idle()
        node.runtime.set_state("box", "running", pid=first.pid)
        self._plan = f"{folder}/plan"
        Path(self._plan).write_bytes(_PLAN.pack(0, 0, 0))
        facts = node.facts
        made = f"{folder}/faulty"
        os.makedirs(made)
        library = compiled.library(str(folder), "faulty_driver", "-ldl")
        os.symlink(library, library_of(Host("", facts.version, made, [])))
        self.faulty = Host(facts.root, facts.version, made, facts.gpus)
        os.environ.update(FAULTY_PLAN=self._plan, FAULTY_DRIVER=library_of(facts))
        self.outcomes = Outcomes()
        self.nodes = Nodes(f"{folder}/nodes", facts.gpus[0].uuid)
        # One for all rounds: a start takes as long as a round.
        self._driver = driver(facts)
        self._worker = self._driver.__enter__()

    def end(self) -> None:
        self._driver.__exit__(None, None, None)
        self.node.end()

    def program(self, verb: str, act: Callable[[], object] = lambda: None) -> int:
        """Start a program that suspends or resumes; the pid. act: called in it before."""
        pid = os.fork()
        if pid == 0:
            try:
                os.setpgid(0, 0)
                act()
                self.run(verb, self.faulty)
            except VcudaError:
                pass
            finally:
                os._exit(0)
        return pid

    def run(self, verb: str, facts: Host) -> None:
        """verb: suspend, resume, move, "resume there": to the GPU that it was not on, drain of the
        container's GPU, or rebalance, which moves it.
        """
        ledger = self.node.ledger
        (now,) = self.node.record("box").shares
        if verb == "drain":
            drain.drain(ledger, facts, now.uuid, Rules(), 20, lambda step: quiet)
        elif verb == "rebalance":
            wanted = Request.of(100 - now.core_percent + 10, gpus=(now.uuid,))
            rebalance.rebalance(ledger, facts, wanted, Rules(), 20, lambda step: quiet)
        elif verb == "suspend":
            control.suspend(ledger, facts, "box", Rules(), seconds=20)
        elif verb == "move":
            control.move(ledger, facts, "box", self._other_gpu(), Rules(), seconds=20)
        else:
            gpu = self._other_gpu() if verb == "resume there" else ""
            control.resume(ledger, facts, "box", Rules(), 5, gpu=gpu)

    def _other_gpu(self) -> str:
        (now,) = self.node.record("box").shares
        return next(gpu.uuid for gpu in self.node.facts.gpus if gpu.uuid != now.uuid)

    def with_harm(self, verb: str, at: int, harm: str) -> bool:
        """One round with harm at the `at`-th call; whether there was such a call."""
        Path(self._plan).write_bytes(_PLAN.pack(0, at, HARMS.index(harm) + 1))
        self._ends(self.program(verb))
        calls = _PLAN.unpack(Path(self._plan).read_bytes())[0]
        Path(self._plan).write_bytes(_PLAN.pack(0, 0, 0))
        if harm.startswith("target") and calls >= at:
            self._await_end_of_target()
        self.judge(f"{verb}, {harm} call {at}")
        return bool(calls >= at)

    def at_random(self, verb: str, random: random.Random, longest: float) -> None:
        """One round in which the program, or a target, or both, are killed at some moment."""
        program = self.program(verb)
        time.sleep(random.uniform(0, longest))
        victims = random.choice((["program"], ["program"], ["target"], ["target", "program"]))
        target = random.choice(self.box.processes)
        if "target" in victims:
            target.kill()
        if "program" in victims:
            os.kill(program, signal.SIGKILL)
        self._ends(program)
        if "target" in victims:
            target.wait(_SECONDS)  # it ends some time after the kill
        self.judge(f"{verb}, {' and '.join(victims)} at random")

    def _await_end_of_target(self) -> None:
        """A target ends some time after its kill."""
        end = time.monotonic() + _SECONDS
        while all(start_time(each.pid) for each in [*self.box.processes, *self.box.bystanders]):
            assert time.monotonic() < end, "no target has ended"
            time.sleep(0.002)

    def _ends(self, program: int) -> None:
        end = time.monotonic() + _SECONDS
        while True:
            pid, status = os.waitpid(program, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                os.kill(program, signal.SIGKILL)
                os.waitpid(program, 0)
                self.outcomes.stuck.append("the program did not end")
                return
            time.sleep(0.002)
        self.outcomes.rounds += 1
        self.outcomes.killed += os.WIFSIGNALED(status)

    def judge(self, what: str) -> None:
        """Repair, as the agent does; then all must be off, or at work."""
        self._judge(what, self._worker)

    def _judge(self, what: str, worker: Worker) -> None:
        ledger, facts = self.node.ledger, self.node.facts
        self._bury()
        try:
            self.nodes.may_enter = False
            self._repair()
            self.nodes.may_enter = True
            elsewhere.settle_nodes(ledger, facts)
            step = self.node.step("box")
            places = self._places(worker)
            if places - {2 if step else 0}:
                self.outcomes.stuck.append(f"{what}: {step}, states {sorted(places)}")
            self._end_drain(what)
            if self.node.step("box"):
                control.resume(ledger, facts, "box", Rules(), 5)
            self._judge_left(what, worker)
            (promised,) = self.node.record("box").shares
            if self._gpus_in_use(worker) - {promised.uuid}:
                self.outcomes.stuck.append(f"{what}: on a GPU that its record does not name")
            if self.nodes.open() != {promised.uuid}:
                self.outcomes.stuck.append(f"{what}: may open {sorted(self.nodes.open())}")
            first = facts.gpus[0].uuid
            missing = len(self.box.processes) < self.count or self._left_killed()
            if missing and promised.uuid != first:
                control.move(ledger, facts, "box", first, Rules())  # a new process begins there
        except (VcudaError, AssertionError) as error:
            self.outcomes.stuck.append(f"{what}: {error}")
            return
        for process in self.box.processes:
            try:
                self.box.works(process)
            except (AssertionError, BrokenPipeError) as error:
                self.outcomes.lost.append(f"{what}: {error}")
        while len(self.box.processes) < self.count:
            self.box.processes.append(self.box.start())
        for pid in self._left_killed():
            state = self.left.pop(pid)
            self.left[left_in(self.box, state)] = state

    def _left_killed(self) -> set[int]:
        return self.left.keys() - {each.pid for each in self.box.bystanders}

    def _judge_left(self, what: str, worker: Worker) -> None:
        now = states_by(worker, [each.pid for each in self.box.bystanders])
        expected = {pid: self.left[pid] for pid in now}
        if now != expected:
            self.outcomes.stuck.append(f"{what}: left as {expected}, now {now}")

    def _repair(self) -> None:
        ledger, facts = self.node.ledger, self.node.facts
        end = time.monotonic() + _SECONDS
        while not repairs.repair(ledger, facts, "box") and time.monotonic() < end:
            held = self.node.record("box").suspension
            if held is None or held.step == "suspended":
                break  # a worker that still ends would have kept the lock otherwise
            time.sleep(0.01)

    def _end_drain(self, what: str) -> None:
        """Drain again, as a user does after a drain was killed; then use the GPU again."""
        ledger, facts = self.node.ledger, self.node.facts
        for uuid in unhealthy.read_drained(ledger.state_dir):
            drain.drain(ledger, facts, uuid, Rules(), 20, lambda step: quiet)
            box = self.node.record("box")
            left = [share for share in box.resident if share.uuid == uuid]
            if left or not unhealthy.read_drained(ledger.state_dir)[uuid].ended:
                self.outcomes.stuck.append(f"{what}: the GPU is not drained")
            was, _ = drain.undrain(ledger, facts, uuid, Rules(), 5, lambda step: quiet)
            if not was or unhealthy.read_drained(ledger.state_dir):
                self.outcomes.stuck.append(f"{what}: the GPU stays drained")

    def places(self) -> set[int]:
        """The states of the container's processes, by the driver."""
        return self._places(self._worker)

    def _places(self, worker: Worker) -> set[int]:
        return set(states_by(worker, [each.pid for each in self.box.processes]).values())

    def _gpus_in_use(self, worker: Worker) -> set[str]:
        """The GPUs on which the container's processes hold memory, by NVML."""
        pids = [each.pid for each in self.box.processes]
        held = worker.memory(pids, time.monotonic() + 10).held
        return {uuid for uuid, size in held.items() if size}

    def _bury(self) -> None:
        """Forget the processes that were killed; the container's first process stays."""
        for kind in (self.box.processes, self.box.bystanders):
            for process in list(kind):
                if start_time(process.pid) == 0 and process.wait(10) == -signal.SIGKILL:
                    kind.remove(process)
                    process.communicate()
