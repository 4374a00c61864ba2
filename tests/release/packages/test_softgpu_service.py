"""A software GPU takes one command, holds after a boot, and needs no setting."""

from __future__ import annotations

import json

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import Way

UNIT = "vcuda-softgpu.service"


def gpus(machine: Machine) -> int:
    return len(json.loads(machine.check("vcuda", "gpus", "--json")))


def test_one_command_makes_software_gpus_that_containers_get(booted: Machine, way: Way) -> None:
    way.prepare(booted)
    assert way.install(booted, built.folder()).rc == 0
    assert booted.run("systemctl", "is-enabled", UNIT).stdout == "disabled\n"
    for _ in range(2):  # as a person who pastes the line again
        booted.check("systemctl", "enable", "--now", UNIT)
    assert gpus(booted) == 2
    assert node.allocates(booted) == node.STOPPED_AT_1_GIB

    # A boot starts the enabled unit on an empty /run.
    booted.check("systemctl", "stop", UNIT)
    assert not booted.exists("/run/softgpu")
    booted.check("systemctl", "start", "multi-user.target")
    assert gpus(booted) == 2

    # Upgrading takes no GPU from a container.
    assert way.install(booted, built.next_version()).rc == 0
    assert gpus(booted) == 2

    assert way.uninstall(booted).rc == 0
    assert booted.check("find", "/etc/systemd", "-name", "*softgpu*") == ""
    assert not booted.exists("/run/softgpu")
