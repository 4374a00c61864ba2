"""Programs that run together in virtual time: see "A virtual clock" in docs/softgpu.md."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
from collections.abc import Sequence
from typing import Any

from support import compiled
from support.gpu.guest import BUILD, Guest

NOW = slice(16, 24)  # in the file: `now_ns` of libvcuda/softgpu/clock/slots.h
SOFTCLOCK = os.path.join(BUILD, "softgpu", "libsoftclock.so.1")


class Clock:
    """A clock for `processes` processes; none runs before all have started.

    A second clock in the same folder continues at the first one's time, because times that the GPU
    has stored must not lie in its future. Its processes share one processor: one thread at a time
    runs, and to wake one on another processor costs more than what it does.
    """

    def __init__(self, folder: pathlib.Path, processes: int) -> None:
        self.path = folder / "softclock"
        self.processes = processes
        self.slots = 0
        self._processor = random.choice(sorted(os.sched_getaffinity(0)))
        now = self.path.read_bytes()[NOW] if self.path.exists() else b""
        self.path.write_bytes(bytes(NOW.start) + now)

    def command(self, *command: str, patience_s: int = 120, without: str = "") -> list[str]:
        """The command line that runs COMMAND in the next slot, without address randomisation.

        without: a system call that the process's kernel lacks.
        """
        settings = [
            f"LD_PRELOAD={SOFTCLOCK}",
            f"SOFTCLOCK={self.slots}/{self.processes}:{self.path}",
            f"SOFTCLOCK_PATIENCE_S={patience_s}",
            *([f"SOFTCLOCK_WITHOUT={without}"] if without else []),
        ]
        self.slots += 1
        pinned = compiled.kept("pinned", "-static")
        return [pinned, str(self._processor), *settings, *command]


def answer(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    return json.loads(out)


def together(folder: pathlib.Path, *runs: tuple[Guest, Sequence[str]]) -> list[Any]:
    """The JSON that each command prints; they begin at the same virtual moment."""
    clock = Clock(folder, len(runs))
    started = [guest.start(*clock.command(*command)) for guest, command in runs]
    try:
        return [answer(process) for process in started]
    finally:
        for process in started:
            process.kill()
