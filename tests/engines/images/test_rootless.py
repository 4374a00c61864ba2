"""Rootless Podman and Docker: available GPUs, and error lines."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from engines.images.test_images_with_a_driver import by_environment
from support.bundle import rootfs
from support.engines.base import Files, Result, Wanted
from support.engines.rootless import RootlessDocker, RootlessPodman, RootlessPodmanOfOneId
from support.needed import skip_or_fail
from support.product import MIB, Product, asking

LIMIT = 1024 * MIB


@pytest.fixture
def product(product_of_proc_driver: Product) -> Product:
    return product_of_proc_driver


ENGINES = (RootlessPodman, RootlessPodmanOfOneId, RootlessDocker)


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.name)
def of_a_user(
    request: pytest.FixtureRequest, files: Files
) -> Iterator[RootlessPodman | RootlessDocker]:
    reason = request.param.missing()
    if reason is not None:
        skip_or_fail(f"{request.param.name}: {reason}")
    with closing(request.param(files)) as engine:
        yield engine


@pytest.fixture
def rootless(
    of_a_user: RootlessPodman | RootlessDocker, product: Product
) -> Iterator[RootlessPodman | RootlessDocker]:
    with product.on(of_a_user):
        yield of_a_user


of_podman = pytest.mark.parametrize("of_a_user", ENGINES[:2], indirect=True)


def test_a_container_that_asks_for_nothing_runs(rootless: Any, container: str) -> None:
    assert rootless.run(container, ["id", "-u"]) == Result(0, "0\n", "")


def test_a_request_for_a_whole_gpu_names_the_containers_that_share_it(
    rootless: Any, product: Product, container: str
) -> None:
    # Before root has ever used vcuda, and when its ledger is there.
    for there in (False, True):
        if there:
            vcuda(rootless, product, "release", "--all-dead")
        refused = rootless.run(container, ["echo", "started"], **asking(rootless, core=30))
        rootless.delete(container)
        assert (refused.rc != 0, refused.stdout) == (True, "")
        assert re.search(
            r"vcuda-container-runtime: \S+/vcuda\S*: cannot be written: Permission denied; shares "
            "are root's to give: run it as root, or have root name a slice with "
            "'vcuda cdi generate --slice', which --device gives to rootless containers too",
            refused.stderr,
        )
        assert product.allocations(rootless) == []
    listed = rootless.host.run(rootless.command("ps", "--all", "--quiet"))
    assert (listed.rc, listed.stdout) == (0, "")


@of_podman
def test_a_slice_that_root_has_named_holds_its_limits(
    rootless: Any, product: Product, files: Files, scratch: str
) -> None:
    rootfs.copy(files.rootfs, scratch + "/rootfs")
    start = by_environment(scratch + "/rootfs")
    rootfs.as_tar(scratch + "/rootfs", scratch + "/layer.tar")
    os.chmod(scratch, 0o755)
    rootless.host.check(rootless.command("import", scratch + "/layer.tar", "localhost/own:1"))
    # runc may make no node without root. It mounts the one that has the same path on the host,
    # whatever the spec says of its source.
    rootless.host.check(["sh", "-c", f"cp -a {product.driver_root}/dev/* /dev"])
    vcuda(rootless, product, "cdi", "generate", "--slice", "train=core:30,memory:1GiB,gpu:1")
    script = """
      ls /dev | grep -x 'nvidia[0-9]*'
      mknod /tmp/other c 195 0 2>&1 | grep -o 'not permitted'
      open-node /dev/nvidia1
      cat /proc/driver/params
      (echo no >/usr/local/vcuda/limits) 2>/dev/null || echo 'limits: read-only'
      vcuda-workload alloc --chunk 1073741824
    """
    *options, _ = rootless._options(Wanted("sliced", []))
    words = [*options, "localhost/own:1", *start, "sh", "-c", script]
    result = rootless.podman("run", "--rm", "--device=vcuda.io/gpu=train", *words)
    assert result.rc == 0, result.stderr
    *lines, filled = result.stdout.splitlines()
    assert lines[:2] == ["nvidia1", "not permitted"]
    assert lines[2] in ("/dev/nvidia1: ENXIO", "/dev/nvidia1: ok")
    assert lines[3:] == ["ModifyDeviceFiles: 0", "limits: read-only"]
    assert json.loads(filled) == {
        "allocated_bytes": LIMIT,
        "exact_bytes": LIMIT,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }


@of_podman
@pytest.mark.parametrize("words", [["podman"], ["podman", "--hooks"], ["podman", "--undo"]])
def test_engines_are_roots_to_configure(rootless: Any, product: Product, words: list[str]) -> None:
    if "--undo" in words:
        vcuda(rootless, product, "configure", "podman")
    command = rootless.as_user(f"{product.prefix}/bin/vcuda", "configure", *words)
    refused = rootless.host.run(command)
    assert (refused.rc, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert re.match(
        r"vcuda: /\S+: cannot be \w+(: Permission denied)?; run it as root", refused.stderr
    )
    there = rootless.host.run(["cat", "/etc/containers/containers.conf.d/99-vcuda.conf"])
    assert (there.rc == 0) == ("--undo" in words)
    vcuda(rootless, product, "configure", "podman", "--undo")


def vcuda(rootless: Any, product: Product, *words: str) -> None:
    """The command, as root."""
    rootless.host.check([f"{product.prefix}/bin/vcuda", *words])
