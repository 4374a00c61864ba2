"""`make install` installs working programs and a valid systemd unit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

import pytest

from support.needed import skip_or_fail
from support.product import REPOSITORY, missing

pytestmark = pytest.mark.usefixtures("files")


def install(folder: str, *words: str) -> None:
    """Into `folder`/usr and `folder`/etc."""
    if reason := missing():
        skip_or_fail(reason)
    command = [REPOSITORY + "/packaging/install", folder + "/usr", folder + "/etc", *words]
    subprocess.run(command, check=True)


def units(folder: str) -> list[str]:
    return [
        os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.endswith((".service", ".mount"))
    ]


def test_the_units_pass_systemd_analyze(scratch: str) -> None:
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("systemd-analyze not installed")
    install(scratch, "", scratch + "/units")
    assert sorted(units(scratch)) == [
        scratch + "/units/local-fs.target.wants/run-vcuda.mount",
        scratch + "/units/run-vcuda.mount",
        scratch + "/units/vcuda-node-agent.service",
        scratch + "/units/vcuda-scheduler-extender.service",
        scratch + "/units/vcuda.service",
    ]
    looked = subprocess.run(
        ["systemd-analyze", "verify", *units(scratch)], capture_output=True, text=True
    )
    assert (looked.returncode, looked.stdout, looked.stderr) == (0, "", "")
    with open(scratch + "/units/vcuda.service") as unit:
        (start,) = [line for line in unit if line.startswith("ExecStart=")]
    # What the unit would start is there, and has the verb.
    program, verb = start.rstrip()[len("ExecStart=") :].split()
    helped = subprocess.run([program, verb, "--help"], capture_output=True, text=True, check=True)
    assert helped.stdout.startswith("usage: vcuda serve")


@pytest.fixture(scope="module")
def installed(session_folder: str) -> str:
    """A folder with the product and without units."""
    folder = tempfile.mkdtemp(dir=session_folder)
    install(folder)
    return folder


def test_no_unit_is_installed_where_none_is_asked_for(installed: str) -> None:
    assert units(installed) == []
    assert os.path.exists(installed + "/usr/bin/vcuda-container-runtime")


def test_the_scheduler_extender_names_what_is_missing_or_runs(installed: str, scratch: str) -> None:
    program = installed + "/usr/bin/vcuda-scheduler-extender"
    asked = subprocess.run([program, "--version"], capture_output=True, text=True)
    lacks = asked.stderr.startswith("vcuda-scheduler-extender: /usr/bin/python3: no module")
    assert lacks == (asked.returncode != 0), asked.stderr
    assert len((asked.stdout + asked.stderr).splitlines()) == 1
    environment = {"PYTHONPATH": installed + "/usr/lib/vcuda/python"}
    command = [sys.executable, "-m", "vcuda_plugin.extender.main", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=scratch)
    assert (result.returncode, result.stdout) == (0, "vcuda-scheduler-extender 0.1.0\n"), (
        result.stderr
    )
