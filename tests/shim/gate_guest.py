"""A guest on the driver mock_gate.c, of which every function tells how many calls are inside."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from shim.conftest import CLIENTS, LIBRARIES, MOCK_UUID
from support.files import ROOT
from support.gpu.guest import GIB, SHIM, Guest, share

sys.path.insert(0, os.path.join(ROOT, "libvcuda"))

from generate import headers, policy

POLICY = os.path.join(ROOT, "libvcuda", "policy.list")
# These the driver has with their true arguments.
OWN = {"cuInit", "cuGetProcAddress_v2"}


def entries_of(include: str) -> tuple[dict[str, policy.Rule], set[str]]:
    """The rule of each export of libcuda, and the names that need not ask."""
    entries = headers.all_entries(include, os.path.join(ROOT, "libvcuda"), "gcc")
    listed = policy.read(POLICY)
    rules = policy.assign(entries, listed)
    cuda = {entry.name for entry in entries if entry.library == "cuda"}
    return {name: rules[name] for name in cuda}, policy.unasked(entries, listed)


def make_driver(folder: pathlib.Path, headers_folder: str, cc: str = "gcc") -> str:
    """A driver root below `folder`."""
    rules, _ = entries_of(headers_folder)
    names = folder / "names.h"
    present = {name for name, rule in rules.items() if rule.kind != policy.ABSENT} - OWN
    names.write_text("".join(f"NAME ({name})\n" for name in sorted(present)))
    libraries = folder / "root" / LIBRARIES
    libraries.mkdir(parents=True)
    command = [cc, "-O1", "-shared", "-fPIC", "-fexceptions", "-Wl,-soname,libcuda.so.1"]
    command += [f"-I{ROOT}/libvcuda", f"-I{CLIENTS}", f'-DGATE_NAMES="{names}"']
    source = os.path.join(CLIENTS, "mock", "mock_gate.c")
    subprocess.run([*command, source, "-o", str(libraries / "libcuda.so.1"), "-ldl"], check=True)
    return str(folder / "root")


def make_guest(
    folder: pathlib.Path, driver: str, calls_ask: bool = True, shim: str = SHIM
) -> Guest:
    gpu = share(MOCK_UUID, GIB)
    return Guest(str(folder / "guest"), driver, [gpu], shim, calls_ask=calls_ask)


def passed_names(headers_folder: str) -> tuple[set[str], set[str]]:
    """Exports that are the driver's own functions: those that ask, and the others."""
    rules, unasked = entries_of(headers_folder)
    passed = {name for name, rule in rules.items() if rule.kind == policy.PASSED}
    return passed - unasked, passed & unasked


def check_passed(
    guest: Guest, command: Sequence[str], names: pathlib.Path, headers_folder: str
) -> None:
    """Each passed function gets its arguments, and is counted if calls ask.

    command: runs the client `gated`.
    """
    asking, others = passed_names(headers_folder)
    names.write_text("\n".join(sorted(asking | others | {"cuFromTheFuture"})))
    out = guest.run(*command, "all", str(names))
    seen = {name: tuple(map(int, answer)) for name, *answer in map(str.split, out.splitlines())}
    counted = int(guest.calls_ask)
    expected = dict.fromkeys(asking, (3, counted, counted, counted))
    expected |= dict.fromkeys(others, (3, 0, 0, 0))
    expected["cuFromTheFuture"] = (1, -1, -1, counted)
    assert len(asking) > 300
    assert seen == expected


def calls_inside(guest: Guest) -> int:
    return sum(process.calls_inside for process in guest.read_usage().processes)


def asked(guest: Guest) -> int:
    return guest.read_usage().resume_asked
