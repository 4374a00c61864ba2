"""Compile the tests' small C programs, each once for the same sources and the same command.

What was made is kept in build/tests, named by the hash of what it was made from: test processes
that run side by side, and the next run, copy or run it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence

from support.files import ROOT

KEPT = ROOT + "/build/tests"
CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")
_CC = (os.environ.get("CC", "gcc"), *FLAGS)


def program(folder: str, name: str, *flags: str) -> str:
    """Compile clients/NAME.c to an executable; return its path."""
    return _compile(os.path.join(folder, name), name, *flags)


def library(folder: str, name: str, *flags: str) -> str:
    """Compile clients/NAME.c to a shared object for LD_PRELOAD; return its path."""
    return _compile(os.path.join(folder, name + ".so"), name, "-shared", "-fPIC", *flags)


@functools.cache
def kept(name: str, *flags: str) -> str:
    """Compile clients/NAME.c to an executable in build/tests; return its path."""
    source = os.path.join(CLIENTS, name + ".c")
    return _made([*_CC, *flags, source], [source])


def make(output: str, command: Sequence[str], inputs: Sequence[str]) -> str:
    """Make OUTPUT by `COMMAND -o OUTPUT`, or copy what the command made of the same inputs before.

    inputs: the files that the command reads, headers too; system headers excepted.
    """
    shutil.copy(_made(command, inputs), output)
    return output


def _made(command: Sequence[str], inputs: Sequence[str]) -> str:
    path = f"{KEPT}/{_key(command, inputs)}"
    if not os.path.exists(path):
        os.makedirs(KEPT, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            made = f"{folder}/made"
            subprocess.run([*command, "-o", made], check=True)
            os.replace(made, path)
    return path


def _key(command: Sequence[str], inputs: Sequence[str]) -> str:
    compiler = _compiler(command[0], os.environ["PATH"])
    digest = hashlib.sha256(repr((compiler, *command)).encode())
    for path in inputs:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


@functools.cache
def _compiler(name: str, path: str) -> tuple[str, int, int]:
    place = os.path.realpath(shutil.which(name, path=path) or name)
    found = os.stat(place)
    return place, found.st_size, found.st_mtime_ns


def _compile(output: str, name: str, *flags: str) -> str:
    if os.path.exists(output):
        return output
    source = os.path.join(CLIENTS, name + ".c")
    return make(output, [*_CC, *flags, source], [source])
