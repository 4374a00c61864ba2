"""vcuda's mount points in images made of containers, and in shared folders."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Sequence

import pytest

from engines.hooks.test_cdi import Host, options
from engines.hooks.test_cdi_read_only import inject
from engines.hooks.test_hooks_d import FOLDER, Hooked, cover
from support.engines.base import IMAGE, Engine, Files, Wanted
from support.engines.docker import Docker
from support.engines.low_level import LowLevel
from support.engines.podman import Podman
from support.product import Product, asking
from support.waiting import until

SEES_OUR_FILES = ["sh", "-c", "test -s /usr/bin/nvidia-smi && test -s /usr/local/vcuda/limits"]


class DockerOnOverlays(Docker):
    """As users have it: each container's root is an overlay over its image."""

    def daemon(self, data: str, state: str) -> list[str]:
        words = super().daemon(data, state)
        return [word.replace("=vfs", "=overlay2") for word in words]


class PodmanOnOverlays(Podman):
    def command(self, *arguments: str) -> list[str]:
        words = super().command(*arguments)
        return [word.replace("=vfs", "=overlay") for word in words]


@pytest.fixture(scope="module")
def docker_engine(files: Files) -> Iterator[DockerOnOverlays]:
    engine = DockerOnOverlays(files)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def podman_engine(files: Files) -> Iterator[PodmanOnOverlays]:
    engine = PodmanOnOverlays(files)
    yield engine
    engine.close()


@pytest.fixture
def docker(docker_engine: DockerOnOverlays, product: Product) -> Iterator[DockerOnOverlays]:
    with product.on(docker_engine):
        yield docker_engine


@pytest.fixture
def podman(podman_engine: PodmanOnOverlays, product: Product) -> Iterator[PodmanOnOverlays]:
    with product.on(podman_engine):
        yield podman_engine


def committed(engine: Docker | Podman, container: str, scratch: str) -> set[str]:
    """The paths that are no folders in an image that is made of an ended container."""
    image = f"localhost/{container}:1"
    for words in (["commit", container, image], ["rm", container]):
        engine.host.check(engine.command(*words))
    return files_of(engine, image, container, scratch)


def files_of(engine: Docker | Podman, image: str, container: str, scratch: str) -> set[str]:
    """The paths that are no folders in an image."""
    packed = f"{scratch}/{container}.tar"
    for words in (
        ["create", f"--name={container}", "--network=none", image, "true"],
        ["export", f"--output={packed}", container],
        ["rm", container],
    ):
        engine.host.check(engine.command(*words))
    with tarfile.open(packed) as tar:
        return {member.name for member in tar if not member.isdir()}


def test_docker_commit_of_an_ended_container_has_no_mount_point(
    docker: DockerOnOverlays, container: str, scratch: str
) -> None:
    words = ["run", f"--name={container}", "--runtime=vcuda", "--network=none"]
    assert docker.docker(*words, IMAGE, "true").rc == 0
    before = committed(docker, container, scratch)
    env = [f"--env={key}={value}" for key, value in asking(docker, core=30)["env"].items()]
    ran = docker.docker(*words, *env, IMAGE, *SEES_OUR_FILES)
    assert ran.rc == 0, ran.stderr
    again = docker.docker("start", "--attach", container)
    assert again.rc == 0, again.stderr
    assert committed(docker, container, scratch) == before


def test_podman_commit_of_an_ended_container_has_no_mount_point(
    podman: PodmanOnOverlays, container: str, scratch: str
) -> None:
    assert podman.start(container, ["true"]).rc == 0
    assert podman.wait(container) == 0
    before = committed(podman, container, scratch)
    asked = asking(podman, core=30)["annotations"]
    started = podman.start(container, SEES_OUR_FILES, annotations=asked)
    assert started.rc == 0, started.stderr
    assert podman.wait(container) == 0
    assert committed(podman, container, scratch) == before


@pytest.mark.parametrize(
    ("device", "has"),
    [("1", "/usr/bin/nvidia-smi"), ("train", "/usr/local/vcuda/limits")],
    ids=["whole GPU", "slice"],
)
def test_podman_commit_after_a_cdi_device_has_no_mount_point(
    podman: PodmanOnOverlays, product: Product, container: str, scratch: str, device: str, has: str
) -> None:
    host = Host(podman, product)
    with podman.using(podman.plain_runtime()):
        made = host.vcuda("cdi", "generate", "--slice", "train=core:30,gpu:0")
        assert made.rc == 0, made.stderr
        name, words = f"--name={container}", options(podman, device)
        plain = [word for word in words if not word.startswith("--device=")]
        assert podman.podman("run", name, *plain, IMAGE, "true").rc == 0
        before = committed(podman, container, scratch)
        ran = podman.podman("run", name, *words, IMAGE, "test", "-s", has)
        assert ran.rc == 0, ran.stderr
        assert committed(podman, container, scratch) == before
        podman.host.run(["rm", "-f", "/var/run/cdi/vcuda.json"])


def test_podman_build_step_has_a_share_and_leaves_no_mount_point(
    podman: PodmanOnOverlays, product: Product, container: str, scratch: str
) -> None:
    image = f"localhost/{container}:1"
    with open(f"{scratch}/Containerfile", "w") as file:
        file.write(f"FROM {IMAGE}\nARG VCUDA_CORE\nRUN nvidia-smi -L >/seen; cat /seen\n")
    words = ["build", "--network=none", f"--tag={image}"]
    words += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", scratch]
    plain = podman.podman(*words)
    assert (plain.rc, "GPU 0" in plain.stdout) == (0, False), plain.stderr
    before = files_of(podman, image, container, scratch)
    built = podman.podman(*words[:-1], "--build-arg=VCUDA_CORE=30", scratch)
    assert (built.rc, "GPU 0" in built.stdout) == (0, True), built.stderr
    assert product.allocations(podman) == []
    assert files_of(podman, image, container, scratch) == before


def layer_of_a_build_step(engine: LowLevel, step: str, devices: Sequence[str]) -> set[str]:
    """Run a step as BuildKit does on cgroup v2; return what is not a folder in its layer.

    BuildKit calls `run --keep`, tries to unmount the root until it is no longer busy, removes the
    bundle, and deletes the container last.
    """
    bundle = engine.make_bundle(Wanted(step, SEES_OUR_FILES if devices else ["true"]))
    root, layer = f"{bundle}/rootfs", engine.host.path(step)
    for folder in (layer, f"{layer}/upper", f"{layer}/work"):
        os.mkdir(folder)
    layers = f"lowerdir={root},upperdir={layer}/upper,workdir={layer}/work"
    with open(f"{bundle}/config.json") as file:
        config = json.load(file)
    if devices:
        spec = json.loads(engine.host.check(["cat", "/var/run/cdi/vcuda.json"]))
        inject(config, spec["containerEdits"])
        for device in spec["devices"]:
            if device["name"] in devices:
                inject(config, device["containerEdits"])
    engine.host.check(["mount", "-t", "overlay", "-o", layers, "overlay", root])
    with open(f"{bundle}/config.json", "w") as file:
        json.dump(config, file)
    ran = engine.call("run", "--keep", "--bundle", bundle, step)
    until(lambda: engine.host.run(["umount", root]).rc == 0, "the root to be unmounted")
    left = {
        os.path.relpath(f"{folder}/{name}", f"{layer}/upper")
        for folder, _, files in os.walk(f"{layer}/upper")
        for name in files
    }
    shutil.rmtree(bundle)
    deleted = engine.call("delete", step)
    shutil.rmtree(layer)
    assert (ran.rc, ran.stderr, deleted.rc, deleted.stderr) == (0, "", 0, "")
    return left


@pytest.mark.parametrize("name", ["runc-v1", "runc-v2"])  # crun 1.8 has no `run --keep`
def test_build_step_with_a_cdi_device_leaves_no_mount_point_in_its_layer(
    name: str, start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    with product.on(engine), engine.using(engine.plain_runtime()):
        vcuda = f"{product.prefix}/bin/vcuda"
        engine.host.check([vcuda, "cdi", "generate", "--slice", "train=core:30,gpu:0"])
        plain = layer_of_a_build_step(engine, container + "-plain", [])
        assert layer_of_a_build_step(engine, container, ["train"]) == plain
        engine.host.run(["rm", "-f", "/var/run/cdi/vcuda.json"])


@pytest.mark.parametrize("name", ["runc-v2", "crun-v2"])
def test_the_end_of_one_container_leaves_the_mounts_of_another_in_the_same_folder(
    name: str, start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    asked = asking(engine, core=30)
    with product.on(engine):
        other = container + "-other"
        assert engine.start(other, ["sleep", "1000"], **asked).rc == 0
        ended = engine.run(container, SEES_OUR_FILES, **asked)
        assert ended.rc == 0, ended.stderr
        seen = engine.exec(other, SEES_OUR_FILES)
        engine.delete(other)
    assert seen.rc == 0, seen.stderr


def test_podman_commit_after_a_hook_in_hooks_d_has_no_mount_point(
    podman: PodmanOnOverlays, product: Product, container: str, scratch: str
) -> None:
    cover(podman)
    hooked = Hooked(podman, product)
    with podman.using(podman.plain_runtime()):
        assert podman.start(container, ["true"]).rc == 0
        assert podman.wait(container) == 0
        before = committed(podman, container, scratch)
        hooked.configure()
        asked = asking(podman, core=30)["annotations"]
        started = podman.start(container, SEES_OUR_FILES, annotations=asked)
        assert started.rc == 0, started.stderr
        assert podman.wait(container) == 0
        assert committed(podman, container, scratch) == before
        hooked.configure("--undo")
    podman.host.check(["umount", FOLDER])
