"""Rootless Podman: what a user without root gets of the GPUs, and what he is told."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from integration import rootfs
from integration.engines.base import IMAGE, Files, Result, Wanted
from integration.engines.podman import Podman
from integration.product import MIB, Product, asking
from integration.test_images_with_a_driver import by_environment
from needed import cannot

LIMIT = 1024 * MIB
USER = "alice"
UID = 1500


class Rootless(Podman):
    """Podman of a user who owns nothing but a folder, in a user namespace of his one id."""

    name = "podman-rootless"
    programs = (*Podman.programs, "setpriv")

    def open(self) -> None:
        self._give_the_host_a_dev_of_its_own()
        home = self.host.path(USER)
        script = f"echo {USER}:x:{UID}:{UID}::{home}:/bin/sh >>/etc/passwd"
        script += f"; mkdir -m 700 {home} {home}/run; chown {UID}:{UID} {home} {home}/run"
        self.host.check(["sh", "-c", script])
        self.host.check(self.command("import", self.files.layer, IMAGE))

    def _give_the_host_a_dev_of_its_own(self) -> None:
        """Before Podman's first start: its pause process keeps the mounts that it finds."""
        made = self.host.path("covered/dev")
        script = f"""
          set -e
          mkdir {made}
          mount -t tmpfs -o mode=755 vcuda-tests {made}
          cd /dev
          cp -a null zero full random urandom tty ptmx fd stdin stdout stderr {made}
          for folder in pts shm; do mkdir {made}/$folder; mount --rbind $folder {made}/$folder; done
          mount --move {made} /dev
        """
        self.host.check(["sh", "-c", script])

    def as_user(self, *command: str) -> list[str]:
        home = self.host.path(USER)
        who = (f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--")
        where = (f"--chdir={home}", f"HOME={home}", f"TMPDIR={home}")
        return ["setpriv", *who, "env", *where, f"XDG_RUNTIME_DIR={home}/run", *command]

    def command(self, *arguments: str) -> list[str]:
        return self.as_user(
            "podman",
            # It warns that it has one id only.
            "--log-level=fatal",
            f"--runtime={self.runtime}",
            "--storage-driver=vfs",
            "--cgroup-manager=cgroupfs",
            "--events-backend=file",
            *arguments,
        )

    def _options(self, wanted: Wanted) -> list[str]:
        no_rights_to = ("--cgroup-parent=", "--cap-add=")
        return [word for word in super()._options(wanted) if not word.startswith(no_rights_to)]


@pytest.fixture
def product(product_of_proc_driver: Product) -> Product:
    return product_of_proc_driver


@pytest.fixture
def rootless(files: Files, product: Product) -> Iterator[Rootless]:
    reason = Rootless.missing()
    if reason is not None:
        cannot(f"{Rootless.name}: {reason}")
    with closing(Rootless(files)) as podman, product.on(podman):
        yield podman


def test_a_container_that_asks_for_nothing_runs(rootless: Rootless, container: str) -> None:
    assert rootless.run(container, ["id", "-u"]) == Result(0, "0\n", "")


def test_one_that_asks_is_told_in_one_line_whose_shares_are(
    rootless: Rootless, product: Product, container: str
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
    assert rootless.podman("ps", "--all", "--quiet").stdout == ""


def test_a_slice_that_root_has_named_holds_its_limits(
    rootless: Rootless, product: Product, files: Files, scratch: str
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


@pytest.mark.parametrize("words", [["podman"], ["podman", "--hooks"], ["podman", "--undo"]])
def test_engines_are_roots_to_configure(
    rootless: Rootless, product: Product, words: list[str]
) -> None:
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


def vcuda(rootless: Rootless, product: Product, *words: str) -> None:
    """The command, as root."""
    rootless.host.check([f"{product.prefix}/bin/vcuda", *words])
