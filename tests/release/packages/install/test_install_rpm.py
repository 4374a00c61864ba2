"""Install the rpms with rpm on roots that have their requirements.

Whether a distribution's own packages satisfy what they require is not asked: all are Debian's.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

from release.packages import built
from release.packages.hosts import machine, node, red_hat
from release.packages.hosts.machine import Machine

SHIM = "/usr/lib/vcuda/libvcuda.so.1"
WRAPPER = "/usr/bin/vcuda-container-runtime"


def rpm(machine: Machine, verb: str, *words: str) -> str:
    """What rpm and the packages' scripts said."""
    line = shlex.join(["rpm", "--force-debian", "--nodeps", verb, *words])
    return machine.check("sh", "-c", f"{line} 2>&1")


def test_installed_upgraded_and_erased_under_a_container_that_runs(plain: Machine) -> None:
    before = plain.names()
    assert rpm(plain, "-i", *node.bring(plain, built.files("rpm", built.folder()))) == node.NO_TMPFS
    node.make_gpus(plain)
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB
    container = node.Container(plain)
    container.start()
    old_shim = container.shim()

    printed = rpm(plain, "-U", *node.bring(plain, built.files("rpm", built.next_version())))
    assert plain.read("/etc/vcuda/config.toml") == node.SETTINGS
    assert "config.toml.rpmnew" in printed
    assert plain.check("vcuda", "--version") == f"vcuda {built.NEXT}\n"
    _runs_on_and_the_next_has_the_new_shim(plain, container, old_shim)

    printed = rpm(plain, "-e", *(f"vcuda-{part}" for part in built.PARTS))
    settings = "/etc/vcuda/config.toml"
    kept = {"/etc/vcuda", "/run/vcuda", *(f"{settings}{end}" for end in (".rpmnew", ".rpmsave"))}
    assert "config.toml.rpmsave" in printed
    assert plain.names() - before == {path for path in kept if "config" not in path}
    assert {path for path in kept if not plain.exists(path)} == set()


def test_an_older_version_takes_its_place_again_under_a_container_that_runs(plain: Machine) -> None:
    rpm(plain, "-i", *node.bring(plain, built.files("rpm", built.next_version())))
    node.make_gpus(plain)
    container = node.Container(plain)
    container.start()
    old_shim = container.shim()
    rpm(plain, "-U", "--oldpackage", *node.bring(plain, built.files("rpm", built.folder())))
    assert plain.check("vcuda", "--version") == f"vcuda {built.THIS}\n"
    assert plain.read("/etc/vcuda/config.toml") == node.SETTINGS
    _runs_on_and_the_next_has_the_new_shim(plain, container, old_shim)


def test_an_erasure_leaves_engines_as_they_were_and_containers_running(plain: Machine) -> None:
    rpm(plain, "-i", *node.bring(plain, built.files("rpm", built.folder())))
    node.make_gpus(plain)
    plain.check("vcuda", "configure", "podman")
    container = node.Container(plain)
    container.start()
    printed = rpm(plain, "-e", "vcuda-node-agent", "vcuda-runtime")
    assert f"vcuda-runtime: {WRAPPER}: stays, since engines end their containers by it" in printed
    assert not plain.exists("/etc/containers/containers.conf.d/99-vcuda.conf")
    assert container.allocates(WRAPPER) == node.STOPPED_AT_1_GIB
    container.call("delete", "--force")
    assert plain.run("runc", "state", container.id).rc != 0


def test_a_full_disk_is_rpms_error_and_the_next_run_finishes(plain: Machine) -> None:
    paths = node.bring(plain, built.files("rpm", built.folder(), "runtime", "softgpu"))
    words = ("rpm", "--force-debian", "--nodeps", "-i", *paths)
    plain.check("rpmdb", "--initdb")  # where rpms are at home it is there
    assert plain.run("dd", "if=/dev/zero", "of=/full", "bs=64k").rc != 0
    refused = plain.run(*words)
    assert refused.rc != 0
    assert "on the / filesystem" in refused.stderr
    plain.check("rm", "/full")
    assert rpm(plain, "-i", *paths) == node.NO_TMPFS
    node.make_gpus(plain)
    assert node.allocates(plain) == node.STOPPED_AT_1_GIB


def rpm_root(root: str, *words: str) -> str:
    """What rpm says that works on another root, where the packages' scripts run."""
    done = subprocess.run(
        ["rpm", f"--root={root}", "--force-debian", "--nodeps", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_in_a_root_of_red_hats_layout_a_container_starts_on_python_3_9(
    swept: None, tmp_path: Path
) -> None:
    root = red_hat.make(f"{tmp_path}/root")
    before = named(root)
    rpms = built.files("rpm", built.folder(), "runtime", "softgpu")
    assert rpm_root(root, "-i", *rpms) == node.NO_TMPFS
    with machine.machine(tree=root) as host:
        node.make_gpus(host)
        assert host.check("python3", "--version").startswith("Python 3.9.")
        # Red Hat's loader would look there by itself.
        command = ["env", "LD_LIBRARY_PATH=/usr/lib64", node.WORKLOAD, "alloc"]
        result = node.run(host, "a", *command)
        assert (result.rc, json.loads(result.stdout)) == (0, node.STOPPED_AT_1_GIB), result.stderr
        found = json.loads(host.run("vcuda", "doctor", "--json").stdout)
        assert [entry for entry in found if entry["severity"] == "error"] == []
    assert rpm_root(root, "-e", "vcuda-runtime", "vcuda-softgpu") == ""
    assert named(root) == before


def named(root: str) -> set[str]:
    """Paths below it that carry vcuda's name."""
    found = subprocess.run(
        ["find", root, "-name", "*vcuda*", "-printf", "%P\n"], stdout=subprocess.PIPE, text=True
    )
    return set(found.stdout.splitlines())


def _runs_on_and_the_next_has_the_new_shim(
    plain: Machine, container: node.Container, old_shim: str
) -> None:
    assert (container.shim(), container.status()) == (old_shim, "running")
    assert container.allocates() == node.STOPPED_AT_1_GIB
    container.call("delete", "--force")
    container.start()
    assert container.shim() == plain.sha256(SHIM) != old_shim
    container.call("delete", "--force")
