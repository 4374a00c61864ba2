"""Start one fuzzer in its own process and folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from support.files import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))
BUILT = ROOT + "/build/fuzz"
LAUNCHER = "launcher"
NAMES = (LAUNCHER, *sorted(set(os.listdir(HERE + "/corpus")) - {LAUNCHER}))
# Above what any input here needs: for a loop that does not end, and for memory without bounds.
_BOUNDS = ("-timeout=60", "-rss_limit_mb=2048", "-max_len=200000")
# In memory, because each run of some syncs a file; a driver root's libraries are loaded from there.
_SHARED = "/dev/shm"
_IS_FAST = os.access(_SHARED, os.W_OK) and not os.statvfs(_SHARED).f_flag & os.ST_NOEXEC


def corpus(name: str) -> str:
    return f"{HERE}/corpus/{name}"


def fuzz(name: str, options: list[str], artifacts: str = BUILT) -> tuple[int, str]:
    """Exit status and what was said. options: libFuzzer's, and folders or files of inputs."""
    with tempfile.TemporaryDirectory(dir=_SHARED if _IS_FAST else None) as folder:
        worker = [sys.executable, HERE + "/worker.py", name, folder]
        ran = subprocess.run(
            [
                *([f"{BUILT}/{name}"] if name == LAUNCHER else worker),
                *_BOUNDS,
                f"-artifact_prefix={artifacts}/{name}-",
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            errors="replace",
        )
    return ran.returncode, ran.stdout
