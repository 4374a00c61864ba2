"""Start and end namespaces in which a script of the tests is process 1."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys


class Namespaces:
    """pid: process 1 of the namespaces, as this host sees it. The script uses first_process.py.

    Raises RuntimeError, with the script's `log`, if the script did not become ready.
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
        # The end of process 1 ends every process of the namespace.
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._init.wait(timeout=30)
