"""Prepare the machine on which a page's commands run: Debian 12, packages, engines."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Sequence

from contract.chart.fake_cluster import FakeCluster
from release.docs.commands import REPOSITORY
from release.docs.registry import Registry
from release.packages import built
from release.packages.hosts import node, podman_host
from release.packages.hosts.machine import DEBIAN, Machine, machine, tree_of
from support.bundle import image, rootfs
from support.host.private_host import Result
from support.needed import skip_or_fail

CHECKOUT = "/srv/vcuda"
PACKAGES = CHECKOUT + "/build/packages"
# Names that pages leave to their reader.
IMAGE = "docker.io/library/example:1"
REGISTRY = "registry.example"
RUNS = 'CMD ["nvidia-smi"]'
USER = 1000
HOMES = ("/root", "/tmp")  # root's and the user's

# What this machine has not: layers over layers, bridges, limits in cgroups.
DOCKER = {
    "storage-driver": "vfs",
    "bridge": "none",
    "iptables": False,
    "exec-opts": ["native.cgroupdriver=cgroupfs"],
}


class Trees:
    """What machines have on their disks before they boot; each is made once, for all pages."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], str] = {(): DEBIAN}
        self._stack = contextlib.ExitStack()

    def of(self, needs: Collection[str]) -> str:
        return self._of(tuple(need for need in ON_DISK if need in needs))

    def _of(self, needs: tuple[str, ...]) -> str:
        if needs not in self._made:
            tree = tree_of(ON_DISK[needs[-1]], self._of(needs[:-1]))
            self._made[needs] = self._stack.enter_context(tree)
        return self._made[needs]

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def prepared(trees: Trees, needs: Sequence[str]) -> Iterator[Machine]:
    """A machine that has its needs, in this order, of

    `checkout`: the repository, with what `make packages` leaves; `installed`: its debs, or
    `softgpu`: that one; `gpus`: two of software; `docker`, `podman`, `containerd`: the engine with
    an image; `images`: what Podman builds images with, and a registry that takes them; `cluster`:
    one that kubectl and Helm reach, of root's and the user's.
    """
    with contextlib.ExitStack() as stack:
        booted = stack.enter_context(machine(boots=True, size="4G", tree=trees.of(needs)))
        booted.write("/etc/dpkg/dpkg.cfg.d/unasked", "force-confold\n")
        for need in needs:
            if prepare := RUNNING.get(need):
                prepare(booted)
            elif around := AROUND.get(need):
                stack.enter_context(around(booted))
        yield booted


def run(machine: Machine, text: str, is_root: bool, folder: str) -> Result:
    """What the command answers, both its outputs as one; what it leaves running may go on."""
    home = HOMES[0] if is_root else HOMES[1]
    words = ["env", f"HOME={home}", "TERM=xterm", "bash", "-c", f"cd {folder} && {text}"]
    if not is_root:
        identity = [f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        words = ["setpriv", *identity, *words]
    output = machine.write("/run/told", "")
    done = machine.run("sh", "-c", f'exec "$@" >{output} 2>&1 </dev/null', "sh", *words)
    return Result(done.rc, machine.read(output), "")


def _checkout(machine: Machine) -> None:
    folder = machine.path(CHECKOUT)
    built.checkout(folder)
    os.unlink(folder + "/build/venv")
    shutil.copytree(REPOSITORY + "/build/softgpu", folder + "/build/softgpu", symlinks=True)
    shutil.copytree(built.folder(), folder + "/build/packages")
    shutil.copy(REPOSITORY + "/build/venv/bin/helm", machine.path("/usr/local/bin/helm"))
    machine.check("chown", "-R", f"{USER}:{USER}", CHECKOUT)


def _installed(machine: Machine) -> None:
    _install(machine)


def _softgpu(machine: Machine) -> None:
    _install(machine, "softgpu")


def _install(machine: Machine, *parts: str) -> None:
    installed = node.install(machine, built.files("deb", built.folder(), *parts))
    assert installed.rc == 0, installed.stderr


@contextlib.contextmanager
def _cluster(machine: Machine) -> Iterator[None]:
    node.join_cluster(machine)
    kubectl = shutil.which("kubectl") or skip_or_fail("kubectl is missing; run 'make prepare'")
    shutil.copy(os.path.realpath(kubectl), machine.path("/usr/local/bin/kubectl"))
    with contextlib.ExitStack() as stack:
        with machine.network():
            server = stack.enter_context(FakeCluster().listening())
        kubeconfig = node.KUBECONFIG.replace("http://127.0.0.1:1", server)
        for home in HOMES:
            machine.write(f"{home}/.kube/config", kubeconfig, 0o600)
        machine.check("chown", "-R", str(USER), HOMES[1] + "/.kube")
        yield


def _base(machine: Machine) -> None:
    podman_host.keep_base(machine)
    podman_host.use_base(machine.path(CHECKOUT + "/packaging/Containerfile"))


@contextlib.contextmanager
def _images(machine: Machine) -> Iterator[None]:
    podman_host.prepare(machine)
    trusted = f'[[registry]]\nlocation = "{REGISTRY}"\ninsecure = true\n'
    machine.write("/etc/containers/registries.conf.d/tests.conf", trusted)
    machine.write("/etc/hosts", f"127.0.0.1 localhost {REGISTRY}\n")
    with contextlib.ExitStack() as stack:
        with machine.network():
            stack.enter_context(Registry().listening())
        yield


def _docker(machine: Machine) -> None:
    machine.write("/etc/docker/daemon.json", json.dumps(DOCKER))
    machine.check("systemctl", "start", "docker")
    machine.check("docker", "import", f"--change={RUNS}", _layer(machine), IMAGE)


def _podman(machine: Machine) -> None:
    podman_host.prepare(machine)
    machine.check("podman", "import", f"--change={RUNS}", _layer(machine), IMAGE)


def _containerd(machine: Machine) -> None:
    packed = machine.shared + "/image.tar"
    _layer(machine)
    image.write(packed, machine.shared + "/layer.tar", IMAGE, command=("nvidia-smi",))
    machine.check("systemctl", "start", "containerd")
    words = ["images", "import", "--snapshotter=native", "/mnt/shared/image.tar"]
    machine.check("ctr", "--namespace=k8s.io", *words)
    machine.check("ctr", *words)


def _layer(machine: Machine) -> str:
    """The image's files: busybox, and a program that takes memory of a GPU."""
    if not os.path.exists(machine.shared + "/layer.tar"):
        tree = machine.shared + "/image"
        workload = REPOSITORY + "/build/softgpu/vcuda-workload"
        rootfs.build(tree, {"/usr/bin/vcuda-workload": workload})
        rootfs.as_tar(tree, machine.shared + "/layer.tar")
    return "/mnt/shared/layer.tar"


# The base image lies below the packages: pages that differ in these share it.
ON_DISK = {"checkout": _checkout, "images": _base, "installed": _installed, "softgpu": _softgpu}
RUNNING = {
    "gpus": node.make_gpus,
    "docker": _docker,
    "podman": _podman,
    "containerd": _containerd,
}
AROUND = {"cluster": _cluster, "images": _images}
