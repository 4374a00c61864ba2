"""A guest on the driver mock_gate.c, of which every function tells how many calls are inside."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from shim.conftest import CLIENTS, LIBRARIES, MOCK_UUID, Clients
from support.guest import GIB, SHIM, TOP, Guest, share

sys.path.insert(0, os.path.join(TOP, "libvcuda"))

from generate import headers, policy

POLICY = os.path.join(TOP, "libvcuda", "policy.list")
# These the driver has with their true arguments.
OWN = {"cuInit", "cuGetProcAddress_v2"}


def entries_of(include: str) -> tuple[dict[str, policy.Rule], set[str]]:
    """The rule of each export of libcuda, and the names that need not ask."""
    entries = headers.all_entries(include, os.path.join(TOP, "libvcuda"), "gcc")
    listed = policy.read(POLICY)
    rules = policy.assign(entries, listed)
    cuda = {entry.name for entry in entries if entry.library == "cuda"}
    return {name: rules[name] for name in cuda}, policy.unasked(entries, listed)


def make_guest(
    folder: pathlib.Path, client: Clients, calls_ask: bool = True, shim: str = SHIM, cc: str = "gcc"
) -> Guest:
    rules, _ = entries_of(client.headers)
    names = folder / "names.h"
    present = {name for name, rule in rules.items() if rule.kind != policy.ABSENT} - OWN
    names.write_text("".join(f"NAME ({name})\n" for name in sorted(present)))
    libraries = folder / "root" / LIBRARIES
    libraries.mkdir(parents=True)
    command = [cc, "-O1", "-shared", "-fPIC", "-fexceptions", "-Wl,-soname,libcuda.so.1"]
    command += [
        f"-I{TOP}/libvcuda",
        f'-DGATE_NAMES="{names}"',
        os.path.join(CLIENTS, "mock_gate.c"),
    ]
    subprocess.run([*command, "-o", str(libraries / "libcuda.so.1"), "-ldl"], check=True)
    gpu = share(MOCK_UUID, GIB)
    return Guest(str(folder / "guest"), str(folder / "root"), [gpu], shim, calls_ask=calls_ask)


def calls_inside(guest: Guest) -> int:
    return sum(process.calls_inside for process in guest.read_usage().processes)


def asked(guest: Guest) -> int:
    return guest.read_usage().resume_asked


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
