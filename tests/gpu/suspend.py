"""Questions of checkpoints: how fast, how complete, what the driver refuses, what a kill leaves.

The driver is called by the product's own worker, for processes of holder.c.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

from bench.result import Figure
from gpu.machine import SOURCES, Machine, UnmeasuredError, answer, wait_until_ready
from support.gpu.guest import GIB, MIB
from vcuda_hook.checkpoint import drive, steps
from vcuda_hook.checkpoint.worker import Answer, Hangs, Worker
from vcuda_oci.ledger.liveness import start_time
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import layout

HOLDER = os.path.join(SOURCES, "holder.c")
MOST_BYTES = 8 * GIB
CALL_SECONDS = 60.0
NO_ROOM_SECONDS = 5.0  # a resume that waits for room
KILLED_AFTER = 0.3  # of the time that the same call took before
GOAL_ABOVE_COPY_MS = 200.0
CHUNK = 64 * MIB
OFF, ON = (steps.LOCK, steps.CHECKPOINT), (steps.RESTORE, steps.UNLOCK)
# As steps.RUNNING and the others count.
STATE_NAMES = ("running", "locked", "checkpointed", "failed", "checkpointing", "restoring")


class Held:
    """A process of holder.c that has said that it is ready; pid: as this process sees it."""

    def __init__(self, process: subprocess.Popen[str], pid: int = 0) -> None:
        self.process, self.pid = process, pid or process.pid
        wait_until_ready(process)
        self.started = {self.pid: start_time(self.pid) or 0}

    def ask(self) -> None:
        """Let it check its memory; said() has what it found."""
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def said(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else answer(self.process)

    def wrong_words(self) -> int:
        self.ask()
        return int(self.said()["wrong"])


class Called:
    """What a call of the driver answered, and how long it took."""

    def __init__(self, answer: Answer, seconds: float) -> None:
        self.status, self.state, self.seconds = answer.status, answer.state, seconds


def call(worker: Worker, name: str, held: Held, seconds: float = CALL_SECONDS) -> Called:
    begin = time.monotonic()
    found = worker.call(name, held.started, [held.pid], begin + seconds)
    return Called(found[held.pid], time.monotonic() - begin)


def must(worker: Worker, names: tuple[str, ...], held: Held) -> dict[str, Called]:
    """Raises UnmeasuredError: the driver refuses one of them."""
    found = {}
    for name in names:
        found[name] = call(worker, name, held)
        if found[name].status:
            raise UnmeasuredError(f"the driver's {name} answers error {found[name].status}")
    return found


@contextlib.contextmanager
def asked(machine: Machine) -> Iterator[Worker]:
    """Raises UnmeasuredError: a driver without checkpoints, or one that does not answer."""
    lock = os.open(os.devnull, os.O_RDONLY)
    try:
        with Worker(machine.library("libcuda"), lock) as worker:
            yield worker
    except VcudaError as error:
        raise UnmeasuredError(str(error)) from error
    except Hangs as error:
        raise UnmeasuredError(f"no answer to '{error.call}' in {error.seconds:.0f} s") from error
    finally:
        os.close(lock)


@contextlib.contextmanager
def holder(machine: Machine, bytes_held: int, kind: str = "plain", *before: str) -> Iterator[Held]:
    """BEFORE: a command that starts it as its only child."""
    command = (*before, machine.compiled(HOLDER), str(bytes_held), kind)
    process = machine.start(*command, stdin=subprocess.PIPE)
    try:
        yield Held(process)
    finally:
        process.kill()
        process.communicate()


def size_of(machine: Machine) -> int:
    """What a process holds here: a part of the card."""
    return min(MOST_BYTES, machine.card.memory_bytes // 4) // CHUNK * CHUNK


def rates(machine: Machine) -> list[Figure]:
    """There and back, on the driver alone; the process in a pid namespace of its own."""
    size = size_of(machine)
    namespace = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    before = machine.nvml()["used_bytes"]
    with holder(machine, size, "plain", *namespace) as held, asked(machine) as worker:
        held.pid = only_child(held.process.pid)
        held.started = {held.pid: start_time(held.pid) or 0}
        off = must(worker, OFF, held)
        left = machine.nvml()["used_bytes"] - before
        on = must(worker, ON, held)
        wrong = held.wrong_words()
    gib = size / GIB
    return [
        Figure("suspend.rate lock", off[steps.LOCK].seconds * 1e3, "ms", None, {}),
        Figure("suspend.rate off", gib / off[steps.CHECKPOINT].seconds, "GiB/s", None, {}),
        Figure("suspend.rate on", gib / on[steps.RESTORE].seconds, "GiB/s", None, {}),
        Figure("suspend.rate left on the GPU", left / MIB, "MiB", None, {}),
        Figure("suspend.rate wrong", wrong, "words", 0, {}),
    ]


def only_child(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return int(file.read().split()[0])


def first_call(machine: Machine) -> list[Figure]:
    """A container's call that finds it suspended, beyond the driver's own copy."""
    container = machine.container(calls_ask=True)
    command = (machine.compiled(HOLDER), str(min(size_of(machine), 4 * GIB)), "plain")
    process = machine.start_in(container, *command, stdin=subprocess.PIPE)
    try:
        held = Held(process)
        with asked(machine) as worker:
            container.suspend(layout.UNTIL_CALL)
            must(worker, OFF, held)
            held.ask()
            while not container.read_usage().resume_asked:
                time.sleep(0.001)
            on = must(worker, ON, held)
            container.suspend(layout.AWAKE)
            said = held.said()
    finally:
        process.kill()
        process.communicate()
    above = said["call_ms"] - 1e3 * sum(one.seconds for one in on.values())
    return [
        Figure("suspend.first call above its copy", above, "ms", GOAL_ABOVE_COPY_MS, {}),
        Figure("suspend.first call wrong", said["wrong"], "words", 0, {}),
    ]


def refusals(machine: Machine) -> list[Figure]:
    """The error of each, 0 for none; the process must work on."""
    figures = []
    for kind in ("managed", "ipc"):
        with holder(machine, CHUNK, kind) as held, asked(machine) as worker:
            status = 0
            for name in OFF:
                status = call(worker, name, held).status
                if status:
                    break
            # Whatever was refused, it goes on from here.
            state = worker.states(held.started, time.monotonic() + CALL_SECONDS)[held.pid]
            back = ON if state == steps.CHECKPOINTED else ON[1:]
            if state != steps.RUNNING:
                must(worker, back, held)
            wrong = held.wrong_words()
        note = f"by '{name}'; then {STATE_NAMES[state]}, {wrong} words wrong"
        figures.append(Figure(f"suspend.refusal {kind}", status, "error", None, {}, note))
    return figures


def no_room(machine: Machine) -> list[Figure]:
    """A resume while others have the memory, and one afterwards."""
    size = size_of(machine)
    with holder(machine, size) as held, asked(machine) as worker:
        targets = held.started.copy
        off = drive.bring(steps.OFF, targets, worker, CALL_SECONDS)
        free = machine.nvml()["free_bytes"]
        with holder(machine, (free - size // 2) // CHUNK * CHUNK):
            refused = drive.bring(steps.ON, targets, worker, NO_ROOM_SECONDS, needed=off.held)
        back = drive.bring(steps.ON, targets, worker, CALL_SECONDS, needed=off.held)
        wrong = held.wrong_words() if not back.reason else -1
    if off.reason:
        raise UnmeasuredError(off.reason)
    note = f"{refused.reason or 'not refused'}; then {back.reason or 'back'}"
    kept = not refused.reason or back.reason or wrong
    return [Figure("suspend.no room lost", int(bool(kept)), "processes", 0, {}, note)]


def refused_restore(machine: Machine) -> list[Figure]:
    """The driver's own answer to a restore without room, and to a second one with room."""
    size = size_of(machine)
    with holder(machine, size) as held, asked(machine) as worker:
        must(worker, OFF, held)
        free = machine.nvml()["free_bytes"]
        with holder(machine, (free - size // 2) // CHUNK * CHUNK):
            first = call(worker, steps.RESTORE, held)
        second = call(worker, steps.RESTORE, held)
    figures = []
    for name, found in (("first", first), ("second", second)):
        note = f"then {STATE_NAMES[found.state]}"
        figures.append(Figure(f"suspend.restore {name}", found.status, "error", None, {}, note))
    return figures


def killed(machine: Machine) -> list[Figure]:
    """The state after the caller of a checkpoint and of a restore is killed, and the way on."""
    figures = []
    with holder(machine, size_of(machine)) as held:
        with asked(machine) as worker:
            took = must(worker, OFF, held) | must(worker, ON, held)
            must(worker, OFF[:1], held)
        for name in (steps.CHECKPOINT, steps.RESTORE):
            kill_in(machine, name, held, KILLED_AFTER * took[name].seconds)
            with asked(machine) as worker:
                note, begin = followed(worker, held), time.monotonic()
                call(worker, name, held)
                seconds = time.monotonic() - begin
                state = worker.states(held.started, time.monotonic() + CALL_SECONDS)[held.pid]
            away = int(state != steps.AFTER[name])
            note = f"{note}; called again {seconds:.1f} s"
            figures.append(Figure(f"suspend.killed {name}", away, "lost", 0, {}, note))
        with asked(machine) as worker:
            must(worker, ON[1:], held)
        wrong = held.wrong_words()
    return [*figures, Figure("suspend.killed wrong", wrong, "words", 0, {})]


def kill_in(machine: Machine, name: str, held: Held, seconds: float) -> None:
    """Kill the caller of NAME after so many seconds."""
    with asked(machine) as worker:

        def stay() -> None:
            with contextlib.suppress(Hangs, ValueError, OSError):
                call(worker, name, held)

        thread = threading.Thread(target=stay)
        thread.start()
        time.sleep(seconds)
        worker.__exit__()
        thread.join()


def followed(worker: Worker, held: Held) -> str:
    """The states that follow, with the seconds at which each was first seen."""
    begin, seen = time.monotonic(), []
    last = -1
    while time.monotonic() - begin < 20:
        states = worker.states(held.started, time.monotonic() + CALL_SECONDS)
        state = states.get(held.pid, -1)
        if state != last:
            name = STATE_NAMES[state] if state >= 0 else "none"
            seen.append(f"{name} {time.monotonic() - begin:.1f} s")
            last = state
        if state not in (steps.CHECKPOINTING, steps.RESTORING) and len(seen) > 1:
            break
        if state not in (steps.CHECKPOINTING, steps.RESTORING) and time.monotonic() - begin > 5:
            break
        time.sleep(0.05)
    return ", ".join(seen)
