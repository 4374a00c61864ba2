"""Every way to look up a function gives the driver's answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shim.conftest import LIBRARIES
from support.files import ROOT
from support.gpu.guest import GIB, SHIM, share

sys.path.insert(0, os.path.join(ROOT, "libvcuda"))

from generate import policy

POLICIES = policy.read(os.path.join(ROOT, "libvcuda", "policy.list"))
HOOKED = {rule.pattern for rule in POLICIES if rule.kind in policy.HOOKED}


@pytest.fixture
def names(built, tmp_path) -> str:
    """A file with every export of libcuda and every base name, for cuGetProcAddress."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", SHIM], capture_output=True, text=True, check=True
    ).stdout
    exports = {line.split()[-1] for line in listing.splitlines()}
    asked = {name for name in exports if name.startswith("cu")}
    path = tmp_path / "names"
    path.write_text("\n".join(sorted(asked | {name.split("_")[0] for name in asked})) + "\n")
    return str(path)


def answers(text: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    for line in text.splitlines():
        *question, name, file = line.split()
        yield tuple(question), name, file


def test_every_look_up_names_the_export_that_the_driver_alone_names(host, new_guest, client, names):
    program = client("finds")
    libraries = os.path.join(host.path, LIBRARIES)
    bare = subprocess.run(
        [program, names],
        env={"LD_LIBRARY_PATH": libraries, "SOFTGPU_ROOT": host.path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    inside = new_guest(share(host.uuids[0], GIB)).run(program, names)
    alone = {question: name for question, name, _ in answers(bare)}
    through = {question: name for question, name, _ in answers(inside)}
    assert len(alone) > 20_000
    assert "?" not in alone.values()
    different = {
        question: (alone[question], through[question])
        for question in alone
        if not set(through[question].split("=")) <= set(alone[question].split("="))
        # What an older driver lacks the shim exports all the same: it answers "not found".
        and (question[0] == "proc" or alone[question] != "-")
    }
    assert dict(list(different.items())[:20]) == {}
    by_ours = {name for _, name, file in answers(inside) if file == "public"}
    by_driver = {name for _, name, file in answers(inside) if file == "driver"}
    assert {name for name in HOOKED if name.startswith("cu")} <= by_ours
    assert by_driver & HOOKED == set()
