"""What tests compile by the Makefile, one at a time: files that need the same begin at once."""

from __future__ import annotations

import fcntl
import os
import subprocess

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def make(*words: str) -> None:
    """words: targets, and what they are made with."""
    with open(REPOSITORY + "/build/made.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["make", "--no-print-directory", *words], cwd=REPOSITORY, check=True)
