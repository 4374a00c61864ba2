"""The images' steps, taken on a fresh Debian 12, and what their pods would start."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from pathlib import Path

from packages import built
from packages.machine import REPOSITORY, Machine

CONTAINERFILE = REPOSITORY + "/packaging/Containerfile"
NOBODY = "65532:65532"


def steps(target: str) -> list[tuple[str, str]]:
    """(instruction, its words) of one target. Source: Containerfile(5)."""
    with open(CONTAINERFILE) as file:
        text = re.sub(r"^#.*\n", "", file.read(), flags=re.MULTILINE).replace("\\\n", "")
    lines = [line.split(None, 1) for line in text.splitlines() if line]
    stages: dict[str, list[tuple[str, str]]] = {}
    for word, rest in lines:
        if word == "FROM":
            base, _, name = rest.split()
            assert base == "debian:bookworm-slim"
            stage = stages.setdefault(name, [])
        else:
            stage.append((word, rest))
    return stages[target]


def make(machine: Machine, target: str) -> tuple[str, list[str]]:
    """Take the steps; whom the image's program runs as, and what it is."""
    built.folder()
    user, command = "", []
    for word, rest in steps(target):
        if word == "COPY":
            *sources, folder = rest.split()
            os.makedirs(machine.path(folder), exist_ok=True)
            for source in sources:
                (path,) = glob.glob(f"{REPOSITORY}/{source}")
                shutil.copy(path, machine.path(folder))
        elif word == "RUN":
            machine.check("sh", "-c", rest)
        elif word == "USER":
            user = rest
        else:
            assert word == "CMD"
            command = json.loads(rest)
    return user, command


def test_the_node_agents_image_has_what_its_pod_starts(plain: Machine) -> None:
    user, command = make(plain, "node-agent")
    assert (user, command) == ("", ["vcuda-node-agent"])
    assert plain.check(*command, "--version") == f"vcuda-node-agent {built.THIS}\n"
    # All of its processes' modules are there, and it meets the lack of a driver, not of a package.
    modules = [path.stem for path in Path(REPOSITORY, "plugin/vcuda_plugin").glob("*.py")]
    code = "import importlib, sys; sys.path.insert(0, '/usr/lib/vcuda/python')\n" + "\n".join(
        f"importlib.import_module('vcuda_plugin.{name}')" for name in sorted(modules)
    )
    plain.check("python3", "-IBc", code)
    assert not plain.exists("/packages")


def test_the_extenders_image_starts_as_nobody_with_debians_own_packages(plain: Machine) -> None:
    user, command = make(plain, "scheduler-extender")
    assert (user, command) == (NOBODY, ["vcuda-scheduler-extender"])
    ids = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups"]
    version = plain.check(*ids, *command, "--version")
    assert version == f"vcuda-scheduler-extender {built.THIS}\n"
    # Without a cluster it says so in one line.
    refused = plain.run(*ids, *command)
    assert refused.rc == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("vcuda-scheduler-extender: the pod's service account: no API server")
    assert not plain.exists("/packages")
