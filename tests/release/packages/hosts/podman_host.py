"""A machine with a Podman that builds, runs and pushes images, though it reaches no other
machine."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence

from release.packages.hosts.machine import DEBIAN, Machine

# What this machine has not: bridges, limits in cgroups. It resolves no names, at once. zstd takes
# less of the processor than gzip, by which a push compresses else.
CONTAINERS = """[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
compression_format = "zstd"
[containers]
netns = "none"
pids_limit = 0
dns_servers = ["127.0.0.1"]
"""
STORAGE = """[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"
[storage.options]
additionalimagestores = [{stores}]
"""
# Where machines that begin with a tree of bring_base's have its image.
STORE = "/srv/images"
# It reaches no mirror, and asks each once: apt's three retries take seven seconds.
APT = "/etc/apt/apt.conf.d/once"
BASE = "debian:bookworm-slim"
# Of the tree that machines begin with, what no image has, and what nothing in one uses: a build and
# a push take time by the byte.
_LEFT_OUT = (
    "./proc", "./sys", "./dev", "./run", "./usr/share/doc", "./usr/share/locale", "./usr/share/man",
    "./usr/bin/docker", "./usr/sbin/dockerd", "./usr/sbin/docker-proxy", "./usr/bin/containerd*",
    "./usr/bin/podman", "./usr/lib/podman", "./usr/bin/ctr", "./usr/bin/dnet",
    "./usr/sbin/ovrouter", "./usr/sbin/runc", "./usr/bin/crun", "./usr/lib/cni", "./usr/lib/file",
    "./usr/lib/*/libicu*", "./usr/lib/*/perl", "./usr/share/perl",
    "./usr/lib/python3/dist-packages/setuptools",
    "./usr/lib/*/libperl*", "./usr/lib/*/gconv", "./usr/lib/*/systemd", "./usr/lib/systemd",
    "./usr/lib/*/libgio*", "./usr/lib/*/libxml2*", "./usr/lib/*/libcrun*", "./usr/bin/gpg*",
)  # fmt: skip

# What programs of the packages use, and their installation does not.
_PROGRAMS_ONLY = (
    "./usr/lib/python3/dist-packages/*", "./usr/lib/python3.11/dist-packages/*",
    "./usr/lib/*/lapack", "./usr/lib/*/blas", "./usr/lib/*/libgfortran*",
    "./usr/lib/*/libprotobuf*",
)  # fmt: skip


def prepare(machine: Machine) -> None:
    stores = f'"{STORE}"' if machine.exists(STORE) else ""
    machine.write("/etc/containers/containers.conf", CONTAINERS)
    machine.write("/etc/containers/storage.conf", STORAGE.format(stores=stores))
    # No overlay lies over an overlay.
    machine.check("mkdir", "-p", "/var/lib/containers")
    machine.check("mount", "-t", "tmpfs", "vcuda-tests", "/var/lib/containers")


def bring_base(machine: Machine, left_out: Sequence[str] = ()) -> None:
    """Give the machine BASE: Debian 12 and what the packages need, in place of the pinned image.

    Its digest is another one, so a build needs `--build-arg BASE=` or use_base. left_out: what its
    containers need not have.
    """
    excluded = [f"--exclude={each}" for each in (*_LEFT_OUT, *left_out)]
    packed = machine.shared + "/base.tar"
    subprocess.run(["tar", "-C", DEBIAN, *excluded, "-cf", packed, "."], check=True)
    own = machine.shared + "/base"
    os.makedirs(own + os.path.dirname(APT))
    with open(own + APT, "w") as file:
        file.write('Acquire::Retries "0";\n')
    subprocess.run(["tar", "-C", own, "-rf", packed, "." + APT], check=True)
    machine.check("podman", "import", "/mnt/shared/base.tar", f"localhost/{BASE}")


def keep_base(machine: Machine) -> None:
    """Leave BASE on the machine's disk, for machines that begin with its tree: they install the
    packages in it, and start no program of theirs."""
    prepare(machine)
    bring_base(machine, _PROGRAMS_ONLY)
    machine.check("cp", "-a", "/var/lib/containers/storage", STORE)


def use_base(containerfile: str) -> None:
    """Make the copy of the Containerfile at this path begin with BASE."""
    with open(containerfile) as file:
        text = file.read()
    with open(containerfile, "w") as file:
        file.write(re.sub("^ARG BASE=.*$", f"ARG BASE={BASE}", text, flags=re.MULTILINE))
