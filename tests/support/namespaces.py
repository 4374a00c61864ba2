"""Namespaces with a script of the tests as process 1: started, and gone with all in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys


class Namespaces:
    """`pid` is process 1, as this host sees it. first_process.py is the script's end of it.

    Raises RuntimeError, with what the script wrote to `log`: it did not get ready.
    """

    def __init__(self, script: str, *words: str, log: str) -> None:
        with open(log, "w") as output:
            self._init = subprocess.Popen(
                [sys.executable, "-I", "-S", script, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )
        assert self._init.stdout is not None
        self.pid = int(self._init.stdout.readline() or 0)
        ready = self._init.stdout.readline().strip()
        self._init.stdout.close()
        if ready != "ready":
            self.close()
            with open(log, errors="replace") as text:
                raise RuntimeError(f"{os.path.basename(script)}: {text.read()}")

    def close(self) -> None:
        # Process 1 of the namespace takes everything in it along.
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._init.wait(timeout=30)
