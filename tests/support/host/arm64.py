"""Run arm64 programs on this machine in an emulator."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from support import makefile
from support.files import ROOT
from support.needed import skip_or_fail

CC = "aarch64-linux-gnu-gcc"
EMULATOR = "/usr/bin/qemu-aarch64-static"
# Debian 12's Python for arm64 and the packages that it needs, unpacked and not installed.
DEBIAN = ROOT + "/build/arm64/debian"
PYTHON = DEBIAN + "/usr/bin/python3.11"


def make(*targets: str) -> None:
    """Build targets of the Makefile for arm64."""
    makefile.make("VCUDA_ARCH=arm64", *targets)


def emulate(program: str, root: str = "") -> None:
    """Replace `program` below `root` by a script that runs it in the emulator."""
    os.rename(root + program, f"{root}{program}.arm64")
    _write_script(root + program, f"{EMULATOR} {program}.arm64")


def python(path: str) -> str:
    """Write an executable at `path` that runs Python for arm64."""
    with _lock():
        if not os.path.exists(PYTHON):
            _unpack_debian()
    _write_script(path, f"{EMULATOR} -L {DEBIAN} {PYTHON}")
    return path


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Tests of several files may unpack at the same time."""
    os.makedirs(os.path.dirname(DEBIAN), exist_ok=True)
    with open(os.path.dirname(DEBIAN) + "/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _unpack_debian() -> None:
    with tempfile.TemporaryDirectory(dir=os.path.dirname(DEBIAN)) as folder:
        words = ["mmdebstrap", "--mode=chrootless", "--variant=extract", "--arch=arm64"]
        made = subprocess.run(
            [*words, "--include=python3", "bookworm", folder + "/debian.tar"],
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            skip_or_fail(f"cannot unpack Python for arm64: {made.stderr}")
        os.mkdir(folder + "/debian")
        unpack = ["tar", "-x", "-C", folder + "/debian", "-f", folder + "/debian.tar"]
        subprocess.run([*unpack, "./lib", "./usr"], check=True)
        shutil.rmtree(DEBIAN, ignore_errors=True)
        os.rename(folder + "/debian", DEBIAN)


def _write_script(path: str, words: str) -> None:
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nexec {words} "$@"\n')
    os.chmod(path, 0o755)
