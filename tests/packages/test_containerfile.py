"""The images' steps, taken on a fresh Debian 12, and what their pods would start."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
from importlib import metadata
from pathlib import Path

import tomllib
from packaging.markers import Marker
from packaging.requirements import Requirement

from needed import cannot
from packages import built
from packages.machine import REPOSITORY, Machine

CONTAINERFILE = REPOSITORY + "/packaging/Containerfile"
NOBODY = "65532:65532"
ALWAYS = Marker("python_version > '3'")


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


def test_the_extenders_image_starts_as_nobody_with_the_packages_that_it_was_tested_with(
    plain: Machine,
) -> None:
    bring_python_packages(plain)
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
    assert not plain.exists("/usr/bin/pip3")


def bring_python_packages(machine: Machine) -> None:
    """Those of the virtual environment that extra 'scheduler' comes to: pip finds there what it
    would fetch."""
    if sys.version_info[:2] != (3, 11):
        cannot("the packages of the virtual environment are not for Debian 12's Python")
    there = machine.path("/usr/local/lib/python3.11/dist-packages")
    with open(REPOSITORY + "/pyproject.toml", "rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    wanted, seen = [Requirement(word) for word in extras["scheduler"]], set()
    while wanted:
        requirement = wanted.pop()
        if requirement.name in seen or not (requirement.marker or ALWAYS).evaluate({"extra": ""}):
            continue
        seen.add(requirement.name)
        found = metadata.distribution(requirement.name)
        wanted += [Requirement(word) for word in found.requires or []]
        for path in found.files or []:
            if ".." not in path.parts and path.suffix != ".pyc":
                os.makedirs(f"{there}/{path.parent}", exist_ok=True)
                shutil.copyfile(str(path.locate()), f"{there}/{path}")
