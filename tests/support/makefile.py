"""Run targets of the Makefile, one test process at a time.

Test files that need the same target may start at once.
"""

from __future__ import annotations

import fcntl
import os
import subprocess

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def make(*words: str) -> None:
    """words: targets and variables."""
    with open(REPOSITORY + "/build/made.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "--no-print-directory", *words], cwd=REPOSITORY, check=True)
