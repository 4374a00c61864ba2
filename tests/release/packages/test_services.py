"""The packages' services on a machine with systemd."""

from __future__ import annotations

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import Way

UNITS = ("vcuda.service", "vcuda-node-agent.service", "vcuda-scheduler-extender.service")


def main_pid(machine: Machine, unit: str) -> str:
    return machine.check("systemctl", "show", "--property=MainPID", "--value", unit).strip()


def states(machine: Machine, verb: str) -> list[str]:
    return machine.run("systemctl", verb, *UNITS).stdout.split()


def test_services_follow_their_packages(booted: Machine, way: Way) -> None:
    way.prepare(booted)
    assert way.install(booted, built.folder()).rc == 0
    node.make_gpus(booted)
    node.join_cluster(booted)
    # What containers can fill is no other's file system.
    assert booted.check("findmnt", "-no", "FSTYPE", "/run/vcuda") == "tmpfs\n"
    # They start when the operator says so, and not before.
    assert states(booted, "is-enabled") == ["disabled"] * 3
    assert states(booted, "is-active") == ["inactive"] * 3

    # Another version takes the place of what runs, and what is stopped stays so: each is both.
    runtime, agent, extender = UNITS
    upgrades = (({runtime, extender}, built.next_version()), ({agent}, built.folder()))
    for active, folder in upgrades:
        booted.check("systemctl", "stop", *UNITS)
        booted.check("systemctl", "enable", "--now", *active)
        before = {unit: main_pid(booted, unit) for unit in active}
        installed = way.install(booted, folder)
        assert installed.rc == 0, installed.stderr
        assert [unit for unit in active if main_pid(booted, unit) in (before[unit], "0")] == []
        expected = ["active" if unit in active else "inactive" for unit in UNITS]
        assert states(booted, "is-active") == expected
        assert node.allocates(booted) == node.STOPPED_AT_1_GIB

    removed = way.uninstall(booted)
    assert removed.rc == 0, removed.stderr
    commands = booted.check("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert "python3" not in commands
    assert states(booted, "is-active") == ["inactive"] * 3
    assert booted.check("find", "/etc/systemd", "-name", "*vcuda*") == ""


def test_failed_service_start_is_reported_and_the_upgrade_continues(booted: Machine) -> None:
    assert node.install(booted, built.files("deb", built.folder())).rc == 0
    node.make_gpus(booted)
    booted.check("systemctl", "start", "vcuda-node-agent")
    booted.write("/etc/vcuda/config.toml", 'placemant = "spread"\n')
    upgraded = node.install(booted, built.files("deb", built.next_version()))
    assert upgraded.rc == 0
    assert "vcuda-node-agent: vcuda-node-agent.service: still as it was before" in upgraded.stderr
    status = booted.check("dpkg-query", "-W", "-f", "${Status} ${Version}", "vcuda-node-agent")
    assert status == f"install ok installed {built.NEXT}-1"


def test_records_from_before_the_installation_are_not_hidden(booted: Machine) -> None:
    """Of containers that run: `make install` was here before, or an older version."""
    record = "/run/vcuda/allocations/box.json"
    booted.check("mkdir", "-p", "/run/vcuda/allocations")
    booted.write(record, "{}")
    installed = node.install(booted, built.files("deb", built.folder(), "runtime"))
    assert (installed.rc, installed.stderr) == (0, "")
    assert booted.read(record) == "{}"
    assert booted.run("findmnt", "/run/vcuda").rc == 1
    # As after a reboot.
    booted.check("rm", "-r", "/run/vcuda")
    booted.check("systemctl", "restart", "local-fs.target")
    assert booted.check("findmnt", "-no", "FSTYPE", "/run/vcuda") == "tmpfs\n"
