"""Programs of arm64 on this machine: by an emulator, as a kernel of their own would start them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile

from needed import cannot

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CC = "aarch64-linux-gnu-gcc"
EMULATOR = "/usr/bin/qemu-aarch64-static"
# What Debian 12's Python of arm64 needs, unpacked and not installed.
DEBIAN = REPOSITORY + "/build/arm64/debian"
PYTHON = DEBIAN + "/usr/bin/python3.11"


def emulate(program: str, root: str = "") -> None:
    """Whoever calls it below `root` gets it by the emulator."""
    os.rename(root + program, f"{root}{program}.arm64")
    _write_script(root + program, f"{EMULATOR} {program}.arm64")


def python(path: str) -> str:
    """Makes `path` a Python of arm64."""
    os.makedirs(os.path.dirname(DEBIAN), exist_ok=True)
    with open(DEBIAN + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(PYTHON):
            _bring_debian()
    _write_script(path, f"{EMULATOR} -L {DEBIAN} {PYTHON}")
    return path


def _bring_debian() -> None:
    with tempfile.TemporaryDirectory(dir=os.path.dirname(DEBIAN)) as folder:
        words = ["mmdebstrap", "--mode=chrootless", "--variant=extract", "--arch=arm64"]
        made = subprocess.run(
            [*words, "--include=python3", "bookworm", folder + "/debian.tar"],
            capture_output=True,
            text=True,
        )
        if made.returncode != 0:
            cannot(f"no Python of arm64: {made.stderr}")
        os.mkdir(folder + "/debian")
        unpack = ["tar", "-x", "-C", folder + "/debian", "-f", folder + "/debian.tar"]
        subprocess.run([*unpack, "./lib", "./usr"], check=True)
        shutil.rmtree(DEBIAN, ignore_errors=True)
        os.rename(folder + "/debian", DEBIAN)


def _write_script(path: str, words: str) -> None:
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nexec {words} "$@"\n')
    os.chmod(path, 0o755)
