"""The debs on a fresh Debian 12: containers get shares, and removal leaves nothing."""

from __future__ import annotations

import json

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine

DOCKER, PODMAN = "/etc/docker/daemon.json", "/etc/containers/containers.conf.d/99-vcuda.conf"
WRAPPER = "/usr/bin/vcuda-container-runtime"


def test_a_container_gets_its_slice_from_the_installed_packages(plain: Machine) -> None:
    installed = node.install(plain, built.files("deb", built.folder()))
    assert (installed.rc, installed.stderr) == (0, node.NO_TMPFS)
    node.make_gpus(plain)
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
    assert plain.check("vcuda", "--version") == f"vcuda {built.THIS}\n"
    # The start path's own modules are compiled: a start compiles none.
    assert plain.check(
        "sh", "-c", "ls /usr/lib/vcuda/python/vcuda_oci/start/__pycache__/main.*.pyc"
    )
    found = json.loads(plain.run("vcuda", "doctor", "--json").stdout)
    assert [entry for entry in found if entry["severity"] == "error"] == []


def test_vcuda_run_starts_from_a_folder_that_was_removed(plain: Machine) -> None:
    node.install(plain, built.files("deb", built.folder()))
    node.make_gpus(plain)
    words = f"vcuda run --name {plain.name}-a --core 30 -- sh -c 'echo in $PWD'"
    line = f"mkdir /tmp/gone; cd /tmp/gone; rmdir /tmp/gone; exec {words}"
    assert plain.check("sh", "-c", line) == "in /\n"


def test_purge_leaves_no_files(plain: Machine) -> None:
    before = plain.names()
    node.install(plain, built.files("deb", built.folder()))
    node.make_gpus(plain)
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
    assert plain.run("vcuda", "configure", "podman").rc == 0
    assert plain.run("vcuda", "cdi", "generate").rc == 0
    purged = plain.run("dpkg", "--purge", *(f"vcuda-{part}" for part in built.PARTS))
    assert purged.rc == 0
    assert plain.names() - before == {WRAPPER}
    assert f"{WRAPPER}: stays, since" in purged.stderr
    # Nothing runs here that could be asked to stop a service.
    assert ".service" not in purged.stderr


def test_a_removal_leaves_engines_as_they_were_and_containers_running(plain: Machine) -> None:
    node.install(plain, built.files("deb", built.folder()))
    node.make_gpus(plain)
    plain.write(DOCKER, '{\n  "debug": true\n}\n')
    plain.check("vcuda", "configure", "docker", "--default")
    plain.check("vcuda", "configure", "podman")
    container = node.Container(plain)
    container.start()
    going = ("vcuda-node-agent", "vcuda-scheduler-extender", "vcuda-runtime")
    removed = plain.run("dpkg", "--remove", *going)
    assert removed.rc == 0, removed.stderr
    assert plain.read(DOCKER) == '{\n  "debug": true\n}\n'
    assert not plain.exists(PODMAN)
    assert "systemctl reload docker" in removed.stdout or "restart docker" in removed.stdout
    # It goes on, within its limits, and its engine can end it as before.
    assert container.status() == "running"
    assert container.allocates(WRAPPER) == node.STOPPED_AT_1_GIB
    container.call("kill", "KILL")
    container.call("delete", "--force")
    assert plain.run("runc", "state", container.id).rc != 0
    # Settings are kept for the next time.
    assert plain.read("/etc/vcuda/config.toml") == node.SETTINGS
    assert node.install(plain, built.files("deb", built.folder(), "runtime")).rc == 0
    assert plain.read("/etc/vcuda/config.toml") == node.SETTINGS
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
