"""A host with Docker's own packages keeps them, whatever is made or installed there.

Debian's docker.io, containerd and runc conflict with them: apt would remove docker-ce to install
Debian's. The stand-ins have the relations of Docker's packages for Debian 12 (docker-ce 29,
containerd.io 2), as their control files state them.
"""

from __future__ import annotations

import glob
import os
import shlex

import pytest

from release.docs.commands import of_page, pages
from release.packages import built
from release.packages.hosts.apt_host import AptHost, installs, removes

PREPARE = f"{built.REPOSITORY}/packaging/prepare"
TARGETS = ("build", "check", "packages", "demo", "fuzz", "bench", "test")
DOCKER_CE = {
    "docker-ce": """Version: 5:29.0.0-1~debian.12~bookworm
Depends: containerd.io (>= 1.7.27), docker-ce-cli, iptables | nftables, libc6 (>= 2.34)
Conflicts: docker (<< 1.5~), docker-engine, docker.io
Replaces: docker-engine""",
    "docker-ce-cli": """Version: 5:29.0.0-1~debian.12~bookworm
Depends: libc6 (>= 2.34)
Conflicts: docker (<< 1.5~), docker-engine, docker-engine-cs, docker.io, lxc-docker
Breaks: docker-ce (<< 5:0)
Replaces: docker-ce (<< 5:0)""",
    "containerd.io": """Version: 2.1.5-1~debian.12~bookworm
Depends: libc6 (>= 2.34), libseccomp2 (>= 2.5.0)
Conflicts: containerd, runc
Replaces: containerd, runc
Provides: containerd, runc""",
    "docker-ce-rootless-extras": """Version: 5:29.0.0-1~debian.12~bookworm
Depends: libc6 (>= 2.34)
Conflicts: rootlesskit
Breaks: rootlesskit
Replaces: rootlesskit
Provides: rootlesskit""",
}
PROGRAMS = ("dockerd", "docker", "containerd", "ctr", "runc", "rootlesskit")
# What a host needs to run containers, pages or a machine of another kind, and no build does.
NOT_FOR_PACKAGES = {
    "docker.io", "containerd", "runc", "crun", "podman", "rootlesskit", "uidmap",
    "chromium", "qemu-user-static", "prometheus", "systemd",
}  # fmt: skip


def stanza(name: str, fields: str) -> str:
    return (
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\n"
        f"Maintainer: stand-in\nDescription: stand-in\n{fields}\n\n"
    )


@pytest.fixture(scope="module")
def docker_ce(tmp_path_factory: pytest.TempPathFactory) -> AptHost:
    """One for all tests: apt makes its cache of the lists at the first call, and no call changes
    what is installed."""
    stanzas = [stanza(name, fields) for name, fields in DOCKER_CE.items()]
    # What they need of Debian, so that the list is consistent to begin with.
    iptables = stanza("iptables", "Version: 1.8.9-2")
    folder = tmp_path_factory.mktemp("docker-ce")
    return AptHost(folder, PROGRAMS, iptables + "".join(stanzas))


@pytest.mark.parametrize("target", TARGETS)
def test_preparing_a_target_leaves_dockers_own_packages(docker_ce: AptHost, target: str) -> None:
    done = docker_ce.run(PREPARE, "--dry-run", target)
    assert done.rc == 0, done.stdout + done.stderr
    assert removes(done.stdout) == set()
    assert installs(done.stdout) & {"docker.io", "containerd", "runc"} == set()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> AptHost:
    return AptHost(tmp_path_factory.mktemp("fresh"))


def test_making_packages_installs_no_engine_browser_or_emulator(fresh: AptHost) -> None:
    done = fresh.run(PREPARE, "--dry-run", "packages")
    assert done.rc == 0, done.stdout + done.stderr
    assert {"musl-tools", "gcc-aarch64-linux-gnu"} <= installs(done.stdout)
    assert installs(done.stdout) & NOT_FOR_PACKAGES == set()


def test_a_fresh_host_gets_every_engine_for_the_tests(fresh: AptHost) -> None:
    done = fresh.run(PREPARE, "--dry-run", "test")
    assert done.rc == 0, done.stdout + done.stderr
    assert {"docker.io", "containerd", "runc", "crun", "podman"} <= installs(done.stdout)


def test_apt_is_refused_what_would_remove_an_engine(docker_ce: AptHost) -> None:
    """The stand-ins conflict as Docker's packages do: else the tests above could not fail."""
    plain = docker_ce.run("apt-get", "--simulate", "--yes", "install", "docker.io")
    assert "docker-ce" in removes(plain.stdout), plain.stdout + plain.stderr
    refused = docker_ce.run("apt-get", "--simulate", "--yes", "--no-remove", "install", "docker.io")
    assert refused.rc != 0


INSTALLING = {
    command.text: command.place
    for page in pages()
    for command in of_page(page)
    if command.text.startswith(("apt-get install", "apt install"))
}


def test_the_install_lines_of_the_documentation_leave_dockers_own_packages(
    docker_ce: AptHost,
) -> None:
    """All of them at once: apt reads its lists anew for each call."""
    made = built.folder()
    assert len(INSTALLING) > 5
    wanted = set(built.files("deb", made, "runtime"))  # what the others' packages depend on
    for line in INSTALLING:
        for word in shlex.split(line)[2:]:
            if word.startswith("-"):
                continue
            is_ours = word.endswith(".deb")
            wanted |= set(glob.glob(f"{made}/{os.path.basename(word)}")) if is_ours else {word}
    words = sorted(wanted)
    done = docker_ce.run("apt-get", "install", "--simulate", "--yes", *words)
    assert done.rc == 0, f"{INSTALLING}\n{done.stdout}{done.stderr}"
    assert removes(done.stdout) == set()
    assert "vcuda-softgpu" in installs(done.stdout)
