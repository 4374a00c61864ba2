"""Calls of the driver for a container's processes, with a deadline for each.

The calls are made by a process of their own (driver_worker.py). It inherits the container's suspend
lock: even if this process is killed and a call of the driver hangs on, no other program works on
the same container.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.model.errors import VcudaError

from ..live import own_program
from . import driver_worker, steps

MEMORY_SECONDS = 30.0
# A driver that has to wake its GPUs first takes seconds.
START_SECONDS = 60.0
# How long a worker may hold the lock for its calls after this process has ended.
LEAVE_SECONDS = 20.0
_LATE_SECONDS = 2.0  # what a lock may take beyond its own time limit
PAUSE_SECONDS = 0.2
_HINT = "check the driver with nvidia-smi"


class Answer(NamedTuple):
    """status: CUresult, or driver_worker.GONE. state: CUprocessState, driver_worker.NO_CUDA or
    UNKNOWN.
    """

    status: int
    state: int


class Memory(NamedTuple):
    """As NVML reports it, in bytes by UUID; without GPUs of which it has no figure.

    held: of the processes asked about, together. free: of each GPU. alone: UUIDs of the GPUs on
    which no other process computes.
    """

    held: Mapping[str, int]
    free: Mapping[str, int]
    alone: Sequence[str] = ()


class Hangs(Exception):
    """No answer in time; the worker has been killed. call: which call. pids: of which processes."""

    def __init__(self, call: str, pids: Sequence[int], seconds: float) -> None:
        super().__init__(call, pids, seconds)
        self.call, self.pids, self.seconds = call, tuple(pids), seconds


class Worker:
    """A worker that starts when it is first needed, again after it has been killed; a context
    manager that ends it.

    library: libcuda's path. lock: the descriptor of the container's suspend lock.
    """

    def __init__(self, library: str, lock: int) -> None:
        self._library, self._lock = library, lock
        self._process: subprocess.Popen[bytes] | None = None
        self._unread, self._last, self._is_ready = b"", 0, False

    def __enter__(self) -> Worker:
        return self

    def start(self) -> None:
        """Start it, unless it runs; it loads the driver meanwhile."""
        if self._process:
            return
        self._unread, self._is_ready = b"", False
        # CUDA_VISIBLE_DEVICES of the caller must not hide a GPU. No MPS daemon is asked: any user
        # of the host may have put a socket that never answers into its usual folder.
        environment = {key: os.environ[key] for key in os.environ if not key.startswith("CUDA_")}
        environment["CUDA_MPS_PIPE_DIRECTORY"] = os.devnull
        self._process = subprocess.Popen(
            own_program.command("checkpoint.driver_worker", self._library, str(LEAVE_SECONDS)),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[self._lock],
        )

    def await_ready(self) -> None:
        """Raises VcudaError: the driver cannot be used, or has no checkpoints."""
        self.start()
        if self._is_ready:
            return
        try:
            (first,) = self._read(1, time.monotonic() + START_SECONDS, lambda: None)
        except (Hangs, ValueError) as error:
            self._end(kills=True)
            raise VcudaError("does not start", self._library, _HINT) from error
        if "error" in first:
            self._end(kills=True)
            hint = "checkpoints need NVIDIA's driver 570 or newer"
            raise VcudaError(f"cannot be used: {first['error']}", self._library, hint)
        if first[driver_worker.READY] != driver_worker.SUCCESS:
            self._end(kills=True)
            what = f"cuInit answers error {first[driver_worker.READY]}"
            raise VcudaError(what, self._library, _HINT)
        self._is_ready = True

    def __exit__(self, *_: object) -> None:
        """A call that it makes, as after an interrupt, ends first; it keeps the lock until then."""
        self._end(kills=not self._is_ready)

    def _end(self, kills: bool) -> None:
        if self._process:
            if kills:
                self._process.kill()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()
            try:
                self._process.wait(_LATE_SECONDS)
            except subprocess.TimeoutExpired:
                pass  # also one that hangs in the kernel and cannot be killed
            self._process = None

    def states(self, started: Mapping[int, int], end: float) -> dict[int, int]:
        """The state of each process that uses CUDA. started: start times by pid. Raises Hangs.

        While the driver copies a process's memory, its state is answered after the copy (driver
        580).
        """
        answers = self.call("state", started, list(started), end)
        return {
            pid: answer.state
            for pid, answer in answers.items()
            if answer.state != driver_worker.NO_CUDA
        }

    def memory(self, pids: Sequence[int], end: float) -> Memory:
        """What these processes hold, and what is free. Raises as `call`."""
        self.await_ready()
        self._last += 1
        self._write({"id": self._last, "call": driver_worker.MEMORY, "pids": list(pids)})
        begun = time.monotonic()
        try:
            (answer,) = self._read(1, min(end, begun + MEMORY_SECONDS), lambda: None)
        except Hangs:
            self._end(kills=True)
            raise Hangs(driver_worker.MEMORY, pids, time.monotonic() - begun) from None
        return Memory(answer["held"], answer["free"], answer["alone"])

    def call(
        self,
        call: str,
        started: Mapping[int, int],
        pids: Sequence[int],
        end: float,
        progress: Callable[[], None] = lambda: None,
        pairs: Sequence[Sequence[str]] = (),
    ) -> dict[int, Answer]:
        """Make a call for each of the processes, at the same time. pairs: as driver_worker has it.

        end: when all have to have answered (monotonic). progress: called while waiting. Raises
        Hangs; VcudaError as `await_ready`.
        """
        self.await_ready()
        late = _LATE_SECONDS if call == steps.LOCK else 0.0
        begun = time.monotonic()
        ids = {}
        for pid in pids:
            self._last += 1
            ids[self._last] = pid
            left = max(1, int((end - begun) * 1000))
            request = {"id": self._last, "call": call, "pid": pid, "started": started[pid]}
            self._write({**request, "ms": left, "pairs": list(pairs)})
        answers: dict[int, Answer] = {}
        try:
            for answer in self._read(len(ids), end + late, progress):
                answers[ids[answer["id"]]] = Answer(answer["status"], answer["state"])
        except Hangs:
            self._end(kills=True)
            silent = [pid for pid in pids if pid not in answers]
            raise Hangs(call, silent, time.monotonic() - begun) from None
        return answers

    def _write(self, request: dict[str, Any]) -> None:
        if not self._process or not self._process.stdin:
            raise Hangs(request["call"], [], 0)
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Hangs(request["call"], [], 0) from None

    def _read(self, count: int, end: float, progress: Callable[[], None]) -> Any:
        """Yield `count` answers. Raises Hangs: not in time, or the worker has ended."""
        if not self._process or not self._process.stdout:
            raise Hangs("", (), 0)
        pipe, answers = self._process.stdout.fileno(), select.poll()
        answers.register(pipe, select.POLLIN)
        while count:
            line, found, rest = self._unread.partition(b"\n")
            if found:
                self._unread = rest
                count -= 1
                yield json.loads(line)
                continue
            left = end - time.monotonic()
            ready = answers.poll(max(0, int(min(left, PAUSE_SECONDS) * 1000)))
            chunk = os.read(pipe, 1 << 16) if ready else b""
            if (ready and not chunk) or (not ready and left <= 0):
                raise Hangs("", (), 0)
            self._unread += chunk
            progress()
