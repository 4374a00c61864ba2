"""Podman builds the images of the Containerfile; their programs start."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from release.packages import built
from release.packages.hosts import machine, podman_host
from release.packages.hosts.machine import REPOSITORY, Machine

AGENT, EXTENDER = "vcuda-node-agent", "vcuda-scheduler-extender"
NOBODY = "65532:65532"


@pytest.fixture(scope="module")
def builder(swept: None) -> Iterator[Machine]:
    """A machine with both images, of a folder with all packages and nothing else."""
    with machine.machine(boots=True) as made:
        podman_host.prepare(made)
        podman_host.bring_base(made)
        context = made.shared + "/context"
        os.makedirs(context + "/packaging")
        shutil.copy(REPOSITORY + "/packaging/Containerfile", context + "/packaging")
        podman_host.use_base(context + "/packaging/Containerfile")
        shutil.copytree(built.folder(), context + "/build/packages")
        for name in (AGENT, EXTENDER):
            where = ("--file=packaging/Containerfile", f"--target={name.removeprefix('vcuda-')}")
            line = " ".join(("podman build", *where, f"--tag={name} ."))
            made.check("sh", "-c", f"cd /mnt/shared/context && exec {line} 2>&1")
        yield made


def config(builder: Machine, name: str) -> Any:
    (found,) = json.loads(builder.check("podman", "image", "inspect", name))
    return found["Config"]


def test_the_node_agents_image_has_what_its_pod_starts(builder: Machine) -> None:
    assert config(builder, AGENT).get("User", "") == ""
    assert config(builder, AGENT)["Cmd"] == [AGENT]
    run = ("podman", "run", "--rm", AGENT)
    assert builder.check(*run, AGENT, "--version") == f"{AGENT} {built.THIS}\n"
    # All of its processes' modules are there, and it meets the lack of a driver, not of a package.
    plugin = Path(REPOSITORY, "plugin")
    files = sorted((plugin / "vcuda_plugin/agent").rglob("*.py"))
    modules = [".".join(file.relative_to(plugin).with_suffix("").parts) for file in files]
    code = "import importlib, sys; sys.path.insert(0, '/usr/lib/vcuda/python')\n" + "\n".join(
        f"importlib.import_module('{module}')" for module in modules
    )
    builder.check(*run, "python3", "-IBc", code)


def test_the_extenders_image_starts_as_nobody_with_debians_own_packages(builder: Machine) -> None:
    assert config(builder, EXTENDER)["User"] == NOBODY
    assert config(builder, EXTENDER)["Cmd"] == [EXTENDER]
    run = ("podman", "run", "--rm", "--read-only", "--cap-drop=all", EXTENDER)
    assert builder.check(*run, "id", "-u") == "65532\n"
    assert builder.check(*run, EXTENDER, "--version") == f"{EXTENDER} {built.THIS}\n"
    # Without a cluster it says so in one line.
    refused = builder.run(*run)
    assert refused.rc == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"{EXTENDER}: the pod's service account: leads to no cluster")


@pytest.mark.parametrize("name", [AGENT, EXTENDER])
def test_an_image_keeps_nothing_of_its_making(builder: Machine, name: str) -> None:
    left = "ls -d /packages /var/lib/apt/lists/* 2>/dev/null; echo looked"
    assert builder.check("podman", "run", "--rm", name, "sh", "-c", left) == "looked\n"


@pytest.mark.parametrize(
    ("rights", "answer"),
    [
        (("--cap-add=all", "--security-opt=seccomp=unconfined"), "Operation not permitted"),
        (("--privileged",), "No such device or address"),  # the driver's, which is not there
    ],
    ids=["every capability", "privileged"],
)
def test_only_a_privileged_pod_opens_nodes_of_gpus_added_later(
    builder: Machine, rights: tuple[str, ...], answer: str
) -> None:
    """With the host's /dev mounted, as the chart does it."""
    node = "/dev/nvidia-of-later"
    builder.check("sh", "-c", f"test -e {node} || mknod -m 666 {node} c 195 7")
    run = ("podman", "run", "--rm", *rights, "--volume=/dev:/dev", AGENT)
    opened = builder.run(*run, "sh", "-c", f"LC_ALL=C cat {node}")
    assert (opened.rc, answer in opened.stderr) == (1, True), opened.stderr


def test_a_package_that_is_not_of_the_build_is_refused(builder: Machine) -> None:
    script = (
        "cp -r /mnt/shared/context /tmp/other && cd /tmp/other && "
        "for deb in build/packages/vcuda-node-agent_*.deb; do echo x >>$deb; done && "
        "podman build --file=packaging/Containerfile --target=node-agent . 2>&1"
    )
    refused = builder.run("sh", "-c", script)
    assert refused.rc != 0
    assert "vcuda-node-agent" in refused.stdout and "FAILED" in refused.stdout, refused.stdout
