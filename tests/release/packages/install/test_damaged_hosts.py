"""Packages on damaged hosts: a failed step is reported, and repeated the next time."""

from __future__ import annotations

import json
import re
import shlex

from release.packages import built
from release.packages.hosts import node
from release.packages.hosts.machine import Machine
from release.packages.hosts.ways import Way

DOCKER = "/etc/docker/daemon.json"
PODMAN = "/etc/containers/containers.conf.d/99-vcuda.conf"
WRAPPER = "/usr/bin/vcuda-container-runtime"
COMPILED = "/usr/lib/vcuda/python/vcuda_hook/engines/__pycache__"


def status(machine: Machine, package: str = "vcuda-runtime") -> str:
    return machine.check("dpkg-query", "-W", "-f", "${Status}", package)


def test_installing_over_a_half_installed_package_finishes_it(plain: Machine) -> None:
    debs = built.files("deb", built.folder())
    plain.check("dpkg", "--unpack", *node.bring(plain, debs))
    assert status(plain) == "install ok unpacked"
    assert node.install(plain, debs).rc == 0
    assert status(plain) == "install ok installed"
    node.make_gpus(plain)
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB


def test_a_dpkg_that_was_killed_is_finished_by_the_next(plain: Machine) -> None:
    """While the package's own script runs: it waits in a python3 of the test's."""
    debs = built.files("deb", built.folder(), "runtime")
    plain.check("rm", "/usr/bin/python3")
    plain.write("/usr/bin/python3", "#!/bin/sh\necho $$ >/pid\nexec sleep 600\n", 0o755)
    line = shlex.join(["dpkg", "-i", *node.bring(plain, debs)])
    dpkg = plain.start("sh", "-c", f"echo $$ >/dpkg; exec {line}")
    plain.wait_for("/pid")
    plain.check("sh", "-c", "kill -9 $(cat /dpkg); kill -9 $(cat /pid)")
    dpkg.communicate()
    plain.check("ln", "-sf", "python3.11", "/usr/bin/python3")
    assert status(plain) == "install ok half-configured"
    assert node.install(plain, debs).rc == 0
    assert status(plain) == "install ok installed"
    assert plain.run("vcuda", "ps").rc == 0


def test_removal_succeeds_without_a_working_python(plain: Machine) -> None:
    assert node.install(plain, built.files("deb", built.folder(), "runtime")).rc == 0
    plain.check("vcuda", "configure", "podman")
    plain.check("rm", "/usr/bin/python3")
    removed = plain.run("dpkg", "--remove", "vcuda-runtime")
    assert removed.rc == 0
    hint = "remove the rest by hand"
    line = f"vcuda-runtime: engines' files: not all of vcuda's entries were removed; {hint}\n"
    assert line in removed.stderr
    # What names them is kept, so that a later installation can still take it back.
    plain.check("ln", "-s", "python3.11", "/usr/bin/python3")
    assert node.install(plain, built.files("deb", built.folder(), "runtime")).rc == 0
    plain.check("vcuda", "configure", "all", "--undo")
    assert not plain.exists(PODMAN)


def test_install_without_space_for_bytecode_succeeds_with_a_warning(plain: Machine) -> None:
    plain.check("mkdir", "-p", COMPILED)
    plain.check("mount", "-t", "tmpfs", "-o", "size=4k", "vcuda-tests", COMPILED)
    debs = built.files("deb", built.folder())
    installed = node.install(plain, debs)
    assert installed.rc == 0
    assert "vcuda-runtime: /usr/lib/vcuda/python: not compiled" in installed.stderr
    node.make_gpus(plain)
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
    plain.check("umount", COMPILED)
    installed = node.install(plain, debs)
    assert (installed.rc, installed.stderr) == (0, node.NO_TMPFS)
    assert plain.check("sh", "-c", f"ls {COMPILED}/configure.*.pyc")


def test_a_disk_that_fills_up_meanwhile_is_dpkgs_error_and_the_next_run_finishes(
    plain: Machine,
) -> None:
    debs = node.bring(plain, built.files("deb", built.folder(), "runtime"))
    assert plain.run("dd", "if=/dev/zero", "of=/full", "bs=64k").rc != 0
    refused = plain.run("dpkg", "-i", *debs)
    assert refused.rc != 0
    assert "No space left on device" in refused.stderr
    plain.check("rm", "/full")
    assert plain.run("dpkg", "-i", *debs).rc == 0
    assert status(plain) == "install ok installed"
    assert plain.check("vcuda", "--version") == f"vcuda {built.THIS}\n"


def test_full_disk_during_an_upgrade_leaves_the_old_version(plain: Machine, way: Way) -> None:
    way.prepare(plain)
    assert way.install(plain, built.folder()).rc == 0
    node.make_gpus(plain)
    container = node.Container(plain)
    container.start()
    later = built.next_version()
    assert plain.run("dd", "if=/dev/zero", "of=/full", "bs=64k").rc != 0
    refused = way.install(plain, later)
    assert refused.rc != 0
    assert re.search("No space left on device|needs .* on the / filesystem", refused.stderr)
    assert plain.check("vcuda", "--version") == f"vcuda {built.THIS}\n"
    assert container.allocates() == node.STOPPED_AT_1_GIB
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
    plain.check("rm", "/full")
    assert way.install(plain, later).rc == 0
    assert plain.check("vcuda", "--version") == f"vcuda {built.NEXT}\n"
    assert (container.status(), container.allocates()) == ("running", node.STOPPED_AT_1_GIB)


def test_engines_file_is_complete_after_a_full_disk_during_configure(
    plain: Machine,
) -> None:
    assert node.install(plain, built.files("deb", built.folder(), "runtime")).rc == 0
    before = json.dumps({"labels": ["x" * 100_000]})
    plain.write(DOCKER, before)
    # Room for the record of it, and not for the file as well.
    plain.write("/spare", "x" * 160_000)
    assert plain.run("dd", "if=/dev/zero", "of=/full", "bs=4k").rc != 0
    plain.check("rm", "/spare")
    refused = plain.run("vcuda", "configure", "docker")
    assert (refused.rc, len(refused.stderr.splitlines())) == (1, 1), refused
    assert f"{DOCKER}: cannot be written: No space left on device" in refused.stderr
    assert plain.read(DOCKER) == before
    assert plain.run("vcuda", "configure", "docker", "--undo").rc == 0
    plain.check("rm", "/full")
    plain.check("vcuda", "configure", "docker")
    assert set(json.loads(plain.read(DOCKER))) == {"labels", "runtimes"}
    plain.check("vcuda", "configure", "docker", "--undo")
    assert plain.read(DOCKER) == before


def test_two_versions_of_the_parts_are_not_mixed(plain: Machine) -> None:
    assert node.install(plain, built.files("deb", built.folder())).rc == 0
    mixed = node.install(plain, built.files("deb", built.next_version(), "node-agent"))
    assert mixed.rc != 0
    assert f"vcuda-runtime (= {built.NEXT}-1)" in mixed.stderr
    assert node.install(plain, built.files("deb", built.next_version())).rc == 0
    assert plain.check("vcuda-node-agent", "--version") == f"vcuda-node-agent {built.NEXT}\n"


def test_an_edit_by_hand_is_reported_and_stays(plain: Machine, way: Way) -> None:
    way.prepare(plain)
    assert way.install(plain, built.folder()).rc == 0
    plain.check("vcuda", "configure", "docker")
    plain.check("vcuda", "configure", "podman")
    edited = plain.read(DOCKER).replace(WRAPPER, "/opt/mine")
    plain.write(DOCKER, edited)
    removed = way.uninstall(plain)
    assert removed.rc == 0
    assert f"vcuda: {DOCKER}: " in removed.stderr
    hint = "remove the rest by hand"
    line = f"vcuda-runtime: engines' files: not all of vcuda's entries were removed; {hint}\n"
    assert line in removed.stderr
    assert plain.read(DOCKER) == edited
    assert not plain.exists(PODMAN)
