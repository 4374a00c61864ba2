"""Upgrade and downgrade the debs under running containers."""

from __future__ import annotations

import json

import pytest

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine

SHIM = "/usr/lib/vcuda/libvcuda.so.1"


def diagnosis(machine: Machine) -> tuple[list[str], str]:
    """What the doctor finds wrong, and the containers with the shim of another version."""
    found = json.loads(machine.run("vcuda", "doctor", "--json").stdout)
    (older,) = (entry["where"] for entry in found if entry["name"] == "older-shim")
    return [entry["what"] for entry in found if entry["severity"] == "error"], older


def before_upgrade(machine: Machine, debs: list[str]) -> dict[str, dict[str, str]]:
    """What the packages' own doctor says before they are installed, by check."""
    (runtime,) = [deb for deb in node.bring(machine, debs) if "/vcuda-runtime_" in deb]
    machine.check("dpkg-deb", "--extract", runtime, "/mnt/shared/new")
    command = "/mnt/shared/new/usr/bin/vcuda"
    found = json.loads(machine.run(command, "doctor", "--upgrade", "--json").stdout)
    return {entry["name"]: entry for entry in found}


@pytest.mark.parametrize("way", ["upgrade", "downgrade"])
def test_running_container_retains_its_shim_and_limits(plain: Machine, way: str) -> None:
    versions = {"upgrade": (built.folder(), built.next_version())}
    versions["downgrade"] = versions["upgrade"][::-1]
    old, new = (built.files("deb", folder) for folder in versions[way])
    assert node.install(plain, old).rc == 0
    node.make_gpus(plain)
    container = node.Container(plain)
    container.start()
    old_shim = plain.sha256(SHIM)
    assert container.shim() == old_shim

    announced = before_upgrade(plain, new)
    assert [found for found in announced.values() if found["severity"] != "ok"] == [
        announced["upgrade"],
        announced["upgrade-shims"],
    ]
    assert announced["upgrade"]["what"] == "from version {}, pages 1 to version {}, pages 1".format(
        *((built.THIS, built.NEXT) if way == "upgrade" else (built.NEXT, built.THIS))
    )
    assert announced["upgrade-shims"]["where"] == container.id
    installed = node.install(plain, new)
    assert installed.rc == 0, installed.stderr
    assert plain.read("/etc/vcuda/config.toml") == node.SETTINGS
    new_shim = plain.sha256(SHIM)
    assert new_shim != old_shim
    # One that runs is none of the new version's business.
    assert container.status() == "running"
    assert container.shim() == old_shim
    assert container.allocates() == node.STOPPED_AT_1_GIB
    assert diagnosis(plain) == ([], container.id)

    # Started again, it is.
    container.call("kill", "KILL")
    container.call("delete", "--force")
    container.start()
    assert container.shim() == new_shim
    assert diagnosis(plain) == ([], "")
    assert container.allocates() == node.STOPPED_AT_1_GIB
    container.call("delete", "--force")
    assert json.loads(plain.check("vcuda", "ps", "--json")) == []


def test_a_specification_of_slices_names_the_new_shim_and_keeps_the_slices(plain: Machine) -> None:
    assert node.install(plain, built.files("deb", built.folder())).rc == 0
    node.make_gpus(plain)
    plain.check("vcuda", "cdi", "generate", "--slice", "train=core:30,memory:1GiB")
    before = plain.read("/run/cdi/vcuda.json")
    assert node.install(plain, built.files("deb", built.next_version())).rc == 0
    after = plain.read("/run/cdi/vcuda.json")
    (old,) = {word for word in before.split('"') if "/libvcuda-" in word}
    (new,) = {word for word in after.split('"') if "/libvcuda-" in word}
    assert (plain.exists(old), plain.exists(new)) == (False, True)
    assert after == before.replace(old, new)


def test_settings_of_the_operator_stay_and_the_new_ones_lie_beside(plain: Machine) -> None:
    assert node.install(plain, built.files("deb", built.folder(), "runtime")).rc == 0
    mine = 'placement = "spread"\n'
    plain.write("/etc/vcuda/config.toml", mine)
    assert node.install(plain, built.files("deb", built.next_version(), "runtime")).rc == 0
    assert plain.read("/etc/vcuda/config.toml") == mine
    beside = plain.read("/etc/vcuda/config.toml.dpkg-dist")
    assert beside.endswith("# A setting may come with a version.\n")


def test_unedited_settings_are_replaced_by_the_new_versions(plain: Machine) -> None:
    assert node.install(plain, built.files("deb", built.folder(), "runtime")).rc == 0
    assert node.install(plain, built.files("deb", built.next_version(), "runtime")).rc == 0
    settings = plain.read("/etc/vcuda/config.toml")
    assert settings.endswith("# A setting may come with a version.\n")
