"""The services work under the restrictions of their units."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from release.packages.test_contents import tree
from release.packages.test_services import UNITS, main_pid
from support.needed import skip_or_fail
from support.waiting import until

# Of a unit that says nothing else.
MOST_EXPOSED = 3.0
PARTS = {
    **dict(zip(UNITS, ("runtime", "node-agent", "scheduler-extender"))),
    "vcuda-softgpu.service": "softgpu",
}


@pytest.mark.parametrize("unit", PARTS)
def test_a_unit_is_no_more_exposed_than_it_says(unit: str) -> None:
    if shutil.which("systemd-analyze") is None:
        skip_or_fail("systemd-analyze not installed")
    built.folder()
    path = f"{tree(PARTS[unit])}/usr/lib/systemd/system/{unit}"
    with open(path) as file:
        exposure = re.search(r"^# Exposure (\d\.\d): \w+", file.read(), re.MULTILINE)
    words = ["systemd-analyze", "security", "--offline=yes", "--no-pager", path]
    shown = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    overall = re.search(r"Overall exposure level for \S+: (\d\.\d)", shown)
    assert overall, shown
    assert float(overall[1]) <= (float(exposure[1]) if exposure else MOST_EXPOSED), shown


def status(machine: Machine, pid: str) -> dict[str, str]:
    lines = machine.check("cat", f"/proc/{pid}/status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_services_work_under_the_restrictions_of_their_units(booted: Machine) -> None:
    assert node.install(booted, built.files("deb", built.folder())).rc == 0
    node.make_gpus(booted)
    node.join_cluster(booted)
    hosts = booted.check("readlink", "/proc/1/ns/mnt")
    for unit in UNITS:
        booted.check("systemctl", "stop", *UNITS)
        booted.check("systemctl", "start", unit)
        pid = main_pid(booted, unit)
        had = status(booted, pid)
        assert (had["NoNewPrivs"], had["Seccomp"]) == ("1", "2"), unit
        # The claim socket answers callers of its own mount namespace alone.
        in_hosts = booted.check("readlink", f"/proc/{pid}/ns/mnt") == hosts
        assert in_hosts == (unit != "vcuda-scheduler-extender.service")
        assert node.allocates(booted) == node.STOPPED_AT_1_GIB
        assert main_pid(booted, unit) == pid
    # Nothing is kept from the agent's children either: they would be started anew for ever.
    booted.check("systemctl", "restart", "vcuda-node-agent")
    until(lambda: booted.run("curl", "-sf", "localhost:5678/metrics").rc == 0, "metrics")
    log = booted.check("journalctl", "--no-pager", "-b", "-u", "vcuda*")
    assert "Operation not permitted" not in log and "Permission denied" not in log, log
