"""An image that ships a libcuda of its own gets its share all the same.

The image's copy is the software GPU's whole driver: a program that loads it has every byte of the
GPU, so each of these tests would see far more than the limit.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from support.bundle import rootfs
from support.engines.base import Engine, Files
from support.engines.docker import Docker
from support.product import MIB, REPOSITORY, Product, asking

LIMIT = 64 * MIB
VERSION = "550.54.14"
BUILT = os.path.join(REPOSITORY, "build/softgpu")
LDCONFIG = "/sbin/ldconfig"
DEBIAN = "/usr/lib/x86_64-linux-gnu"
COMPAT = "/usr/local/cuda-12.4/compat"

Image = str  # a root file system's folder


def ship(image: Image, folder: str) -> None:
    """A driver in this folder, its links as an installation makes them."""
    os.makedirs(image + folder, exist_ok=True)
    for name in ("libcuda", "libnvidia-ml"):
        shutil.copy(f"{BUILT}/{name}.so.1", f"{image}{folder}/{name}.so.{VERSION}")
        os.symlink(f"{name}.so.{VERSION}", f"{image}{folder}/{name}.so.1")


def by_environment(image: Image) -> list[str]:
    ship(image, COMPAT)
    os.symlink("cuda-12.4", image + "/usr/local/cuda")
    return ["env", "LD_LIBRARY_PATH=/usr/local/cuda/compat:/nowhere"]


def in_the_default_folder(image: Image) -> list[str]:
    ship(image, DEBIAN)
    return []


def below_links_into_the_default_folder(image: Image) -> list[str]:
    """As packages of Debian's have it; the first link is an absolute one."""
    ship(image, DEBIAN + "/nvidia/current")
    os.makedirs(image + "/etc/alternatives")
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        os.symlink(f"{DEBIAN}/nvidia/current/{name}", f"{image}/etc/alternatives/{name}")
        os.symlink(f"/etc/alternatives/{name}", f"{image}{DEBIAN}/{name}")
    return []


def in_another_default_folder(image: Image) -> list[str]:
    """The loader looks into /lib and /usr/lib too, and a cache may prefer them."""
    ship(image, "/usr/lib")
    _configure(image, "/usr/lib")
    return []


def in_usr_local(image: Image) -> list[str]:
    ship(image, "/usr/local/lib")
    _configure(image, "/usr/local/lib")
    return []


def by_the_cache_alone(image: Image) -> list[str]:
    ship(image, "/opt/driver/lib")
    os.unlink(_configure(image, "/opt/driver/lib"))
    return []


def by_configuration_once_ldconfig_runs(image: Image) -> list[str]:
    """As entry points do it."""
    ship(image, "/opt/driver/lib")
    os.unlink(_configure(image, "/opt/driver/lib").replace("ld.so.conf.d/own.conf", "ld.so.cache"))
    shutil.copy(LDCONFIG, image + "/usr/sbin/ldconfig")
    return ["sh", "-c", 'ldconfig && exec "$@"', "sh"]


def by_the_programs_runpath(image: Image) -> list[str]:
    ship(image, COMPAT)
    objects = glob.glob(f"{BUILT}/obj/workload/*.o")
    output = image + "/usr/bin/vcuda-workload"
    os.unlink(output)
    subprocess.run(["gcc", "-o", output, *objects, f"-Wl,--enable-new-dtags,-rpath,{COMPAT}"],
                   check=True)  # fmt: skip
    return []


WAYS = [
    by_environment,
    in_the_default_folder,
    below_links_into_the_default_folder,
    in_another_default_folder,
    in_usr_local,
    by_the_cache_alone,
    by_configuration_once_ldconfig_runs,
    by_the_programs_runpath,
]


def _configure(image: Image, folder: str) -> str:
    """Tell the image's loader of a folder, as an image's build does; the setting's file."""
    os.makedirs(image + "/etc/ld.so.conf.d")
    with open(image + "/etc/ld.so.conf", "w") as file:
        file.write("include /etc/ld.so.conf.d/*.conf\n")
    path = image + "/etc/ld.so.conf.d/own.conf"
    with open(path, "w") as file:
        file.write(folder + "\n")
    subprocess.run([LDCONFIG, "-r", image], check=True)
    return path


@pytest.fixture(params=["runc-v2", "crun-v2", "docker"])
def sharing(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Engine]:
    engine = start_engine(request.param)
    with product.on(engine):
        yield engine


@pytest.fixture
def image(files: Files, scratch: str) -> Image:
    rootfs.copy(files.rootfs, scratch + "/rootfs")
    return scratch + "/rootfs"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_limit_holds_in_an_image_that_ships_a_driver(
    sharing: Engine, image: Image, container: str, way: Callable[[Image], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    start = way(image)
    if isinstance(sharing, Docker):
        rootfs.as_tar(image, image + ".tar")
        monkeypatch.setattr(sharing, "image", f"{container}:1")
        sharing.host.check(sharing.command("import", image + ".tar", sharing.image))
    else:
        changed = dataclasses.replace(sharing.files, rootfs=image)
        monkeypatch.setattr(sharing, "files", changed)
    script = f"vcuda-workload alloc --chunk {LIMIT} && nvidia-smi"
    asked = asking(sharing, core=30, memory_bytes=LIMIT)
    result = sharing.run(container, [*start, "sh", "-c", script], **asked)
    assert result.rc == 0, result.stderr
    allocated, _, table = result.stdout.partition("\n")
    assert json.loads(allocated) == {
        "allocated_bytes": LIMIT,
        "exact_bytes": LIMIT,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
    assert re.findall(r"(\d+) ?(?:MiB)? */ *(\d+) ?MiB", table) == [("0", str(LIMIT // MIB))]
