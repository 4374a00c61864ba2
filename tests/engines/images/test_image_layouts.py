"""A container gets the driver in its image loader's folder, for any layout."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable

import pytest

from support.bundle import rootfs
from support.engines.base import Engine
from support.product import MIB, Product, asking
from vcuda_oci.system import machine

LIMIT = 64 * MIB
LOADER = f"lib64/{rootfs.LOADER}"


def debian_before_the_merge(image: str) -> None:
    """As in images of Debian 11 that are cut down to what a program needs."""
    _separate_lib_from_usr(image, machine.THIS.multiarch.removeprefix("/usr/"))


def a_small_image_of_debians_libraries(image: str) -> None:
    """As in Docker's busybox:glibc, where all libraries are in /lib."""
    _separate_lib_from_usr(image, "lib")
    shutil.rmtree(f"{image}/lib64")
    os.symlink("lib", f"{image}/lib64")


def a_folder_of_other_programs_in_usr_lib(image: str) -> None:
    """Debian's loader looks into neither /usr/lib64 nor /lib64."""
    debian_before_the_merge(image)
    os.makedirs(f"{image}/usr/lib64")


def _separate_lib_from_usr(image: str, folder: str) -> None:
    """Move the libraries to `folder`. The rest of /usr/lib is empty here."""
    libraries = os.listdir(image + machine.THIS.multiarch)
    os.unlink(f"{image}/lib")
    os.unlink(f"{image}/lib64")
    os.makedirs(f"{image}/{folder}")
    os.makedirs(f"{image}/lib64")
    for name in libraries:
        shutil.move(f"{image}{machine.THIS.multiarch}/{name}", f"{image}/{folder}/{name}")
    shutil.rmtree(f"{image}/usr/lib")
    shutil.rmtree(f"{image}/usr/lib64")
    shutil.copy(f"{image}/{folder}/{rootfs.LOADER}", f"{image}/{LOADER}")


@pytest.mark.parametrize(
    "layout",
    [
        debian_before_the_merge,
        a_small_image_of_debians_libraries,
        a_folder_of_other_programs_in_usr_lib,
    ],
    ids=lambda layout: layout.__name__,
)
def test_a_program_loads_the_driver_in_every_layout_of_an_image(
    start_engine: Callable[[str], Engine],
    product: Product,
    scratch: str,
    container: str,
    layout: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = start_engine("runc-v2")
    rootfs.copy(engine.files.rootfs, f"{scratch}/rootfs")
    layout(f"{scratch}/rootfs")
    changed = dataclasses.replace(engine.files, rootfs=f"{scratch}/rootfs")
    monkeypatch.setattr(engine, "files", changed)
    script = f"vcuda-workload alloc --chunk {LIMIT}"
    with product.on(engine):
        asked = asking(engine, core=30, memory_bytes=LIMIT)
        result = engine.run(container, ["sh", "-c", script], **asked)
    assert result.rc == 0, result.stderr
    assert json.loads(result.stdout)["allocated_bytes"] == LIMIT
