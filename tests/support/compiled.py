"""Compile the tests' small C programs from clients/ into a folder of the test session."""

from __future__ import annotations

import os
import subprocess

CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients")
FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror")


def program(folder: str, name: str, *flags: str) -> str:
    """Compile clients/NAME.c to an executable; return its path."""
    return _compile(os.path.join(folder, name), name, *flags)


def library(folder: str, name: str, *flags: str) -> str:
    """Compile clients/NAME.c to a shared object for LD_PRELOAD; return its path."""
    return _compile(os.path.join(folder, name + ".so"), name, "-shared", "-fPIC", *flags)


def _compile(output: str, name: str, *flags: str) -> str:
    if not os.path.exists(output):
        source = os.path.join(CLIENTS, name + ".c")
        compiler = os.environ.get("CC", "gcc")
        subprocess.run([compiler, *FLAGS, *flags, "-o", output, source], check=True)
    return output
