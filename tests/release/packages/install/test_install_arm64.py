"""arm64's deb and rpm on a fresh Debian 12 of amd64: what they install starts containers, the front
door and the hooks in emulation."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import Way
from support.host.arm64 import EMULATOR, emulate
from support.needed import skip_or_fail

WRAPPER, HOOK = "/usr/bin/vcuda-container-runtime", "/usr/bin/vcuda-container-hook"
# Of another machine's package dpkg and rpm know nothing of what it needs, nor that it could run.
FORCED = {
    "dpkg": "dpkg --force-architecture --force-depends --install",
    "rpm": "rpm --force-debian --nodeps --ignorearch --install",
}


@pytest.fixture
def installed(plain: Machine, way: Way) -> Iterator[Machine]:
    if not os.path.exists(EMULATOR):
        skip_or_fail(f"{EMULATOR} is missing; run 'make prepare'")
    shutil.copy(EMULATOR, plain.path("/usr/bin"))
    way.prepare(plain)
    paths = built.files(way.form, built.folder(), "runtime", machine="arm64")
    done = plain.run("sh", "-c", " ".join((FORCED[way.program], *node.bring(plain, paths))))
    assert done.rc == 0, done.stderr
    for program in (WRAPPER, HOOK):
        emulate(program, plain.path(""))
    yield plain


def holders(machine: Machine) -> list[str]:
    return [held["id"] for held in json.loads(machine.check("vcuda", "ps", "--json"))]


def test_a_container_starts_and_its_share_is_given_back(installed: Machine) -> None:
    assert installed.check("vcuda", "--version") == f"vcuda {built.THIS}\n"
    assert node.install(installed, built.files("deb", built.folder(), "softgpu")).rc == 0
    node.make_gpus(installed)
    container = node.Container(installed)
    container.start()
    assert (container.status(), holders(installed)) == ("running", [container.id])
    # Its programs are of amd64: none of them can load it.
    assert container.shim() == installed.sha256("/usr/lib/vcuda/libvcuda.so.1")
    container.call("kill", "KILL")
    container.call("delete", "--force")
    assert holders(installed) == []


def test_the_hook_refuses_what_is_no_state_in_one_line(
    installed: Machine,
) -> None:
    refused = installed.run("sh", "-c", f"echo garbage | {HOOK} createRuntime")
    assert refused.rc == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("vcuda-container-hook: ")
