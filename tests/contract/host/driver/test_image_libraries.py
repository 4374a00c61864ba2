"""Driver files in an image are found in the folders of the image's own loader only."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_layouts import LDCONFIG
from vcuda_oci.container import image_libraries
from vcuda_oci.container.container import container_of
from vcuda_oci.guest.tree import Tree
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import ldcache

NAMES = ("libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-ml.so.1")


def found(bundle: Any, *env: str) -> dict[str, str]:
    return found_by({"root": {"path": "rootfs"}, "process": {"env": list(env)}}, bundle)


def found_by(spec: Any, bundle: Any) -> dict[str, str]:
    container = container_of(spec, "", str(bundle))
    with Tree(container.rootfs) as image:
        return image_libraries.find(image, container, NAMES)


@pytest.fixture
def image(tmp_path: Any) -> str:
    """A merged /usr, as distributions have it."""
    root = f"{tmp_path}/rootfs"
    for folder in ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/local", "etc", "opt"):
        os.makedirs(f"{root}/{folder}")
    os.symlink("usr/lib", root + "/lib")
    os.symlink("usr/lib64", root + "/lib64")
    return root


def library(image: str, folder: str, version: str = "550.54.14", name: str = "libcuda") -> str:
    """A versioned file and its soname's link; the file's path inside is the answer."""
    file = f"{name}.so.{version}"
    write(f"{image}{folder}/{file}", "")
    os.symlink(file, f"{image}{folder}/{name}.so.1")
    return f"{folder}/{file}"


def test_an_image_without_a_driver_has_none(image: str, tmp_path: Any) -> None:
    write(image + "/usr/lib/x86_64-linux-gnu/libc.so.6", "")
    write(image + "/etc/ld.so.conf.d/x.conf", "/opt\n")
    subprocess.run([LDCONFIG, "-r", image], check=True, capture_output=True)
    assert found(tmp_path) == {}


@pytest.mark.parametrize(
    "folder",
    [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
        "/usr/local/nvidia/lib64",
        "/usr/local/cuda/compat",
        "/usr/local/cuda-12.4/compat",
    ],
)
def test_libcuda_in_a_loader_folder_is_found_once(image: str, tmp_path: Any, folder: str) -> None:
    """Also where two names lead to one folder, as /lib and /usr/lib do."""
    path = library(image, folder)
    assert found(tmp_path) == {path: "libcuda.so.1"}


def test_libcuda_and_its_neighbours_are_found_by_every_method(image: str, tmp_path: Any) -> None:
    compat = library(image, "/usr/local/cuda-12.4/compat")
    os.symlink("cuda-12.4", image + "/usr/local/cuda")
    jit = library(image, "/usr/local/cuda-12.4/compat", name="libnvidia-ptxjitcompiler")
    write(image + "/usr/local/cuda-12.4/compat/libother.so.1", "")
    by_env = library(image, "/opt/env/lib")
    nvml = library(image, "/opt/conf/lib", name="libnvidia-ml")
    write(image + "/etc/ld.so.conf.d/a.conf", "# comment\n/opt/conf/lib # here\n")
    write(image + "/etc/ld.so.conf.d/ignored", "/opt/ignored\n")
    library(image, "/opt/ignored")
    # ldconfig ran with another configuration than is there now.
    cached = library(image, "/opt/cached/lib")
    elf = f"{tmp_path}/elf.so"
    source = write(f"{tmp_path}/e.c", "int x;")
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", elf, source], check=True)
    with open(elf, "rb") as file:
        write(image + cached, file.read())
    conf = write(image + "/etc/once.conf", "/opt/cached/lib\n")
    subprocess.run([LDCONFIG, "-r", image, "-f", "/etc/once.conf"], check=True, capture_output=True)
    os.unlink(conf)
    paths = "LD_LIBRARY_PATH=relative::/nowhere:/usr/local/cuda/compat;/opt/env/lib"
    assert found(tmp_path, paths) == {
        compat: "libcuda.so.1",
        jit: "libnvidia-ptxjitcompiler.so.1",
        by_env: "libcuda.so.1",
        nvml: "libnvidia-ml.so.1",
        cached: "libcuda.so.1",
    }
    assert by_env not in found(tmp_path)


def test_what_a_volume_hides_is_not_found(image: str, tmp_path: Any) -> None:
    """Mounted over all the same, the mount point would be made on the host, in the volume."""
    for folder in ("/usr/local/cuda/compat", "/usr/local/nvidia/lib64", "/usr/local/lib"):
        library(image, folder)
    os.symlink("usr/local/nvidia", image + "/nv")
    own = library(image, "/usr/lib64")
    places = ["/proc", "/usr/local/cuda", "/nv/lib64/", "/usr/local/li", own, "/", 5, None]
    mounts = [*({"destination": place} for place in places), 5]
    spec = {"root": {"path": "rootfs"}, "mounts": mounts}
    assert found_by(spec, tmp_path) == {
        "/usr/local/lib/libcuda.so.550.54.14": "libcuda.so.1",
        own: "libcuda.so.1",
    }


def test_links_are_followed_inside_the_image_only(image: str, tmp_path: Any) -> None:
    """Each would lead to a libcuda of the host, if followed on the host."""
    outside = f"{tmp_path}/outside"
    write(outside + "/libcuda.so.1", "")
    os.symlink(outside, image + "/usr/local/lib")
    os.symlink("../" * 30 + outside.lstrip("/"), image + "/usr/local/lib64")
    os.symlink(outside + "/libcuda.so.1", image + "/usr/lib64/libcuda.so.1")
    up = "../" * 30 + outside.lstrip("/") + "/libcuda.so.1"
    os.symlink(up, image + "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    os.symlink("/proc/self/root" + outside, image + "/usr/local/cuda")
    os.symlink("loop", image + "/usr/lib/loop")
    os.symlink("loop", image + "/usr/lib/libcuda.so.1")
    assert found(tmp_path, f"LD_LIBRARY_PATH={outside}:{'/..' * 300}{outside}") == {}
    # The same path inside the image is the image's.
    inside = write(f"{image}{outside}/libcuda.so.1", "")
    assert found(tmp_path) == {inside[len(image) :]: "libcuda.so.1"}


def test_irregular_file_is_neither_opened_nor_an_answer(image: str, tmp_path: Any) -> None:
    """Reading the pipes would wait for ever."""
    os.makedirs(image + "/etc/ld.so.conf.d")
    os.mkfifo(image + "/etc/ld.so.conf.d/a.conf")
    os.mkfifo(image + "/etc/ld.so.cache")
    os.mkfifo(image + "/usr/lib64/libcuda.so.1")
    os.makedirs(image + "/usr/lib/libcuda.so.1")
    os.mknod(image + "/etc/ld.so.conf", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    assert found(tmp_path) == {}


def many_folders(image: str) -> None:
    write(image + "/etc/ld.so.conf", "".join(f"/opt/{n}\n" for n in range(2000)))


def large_conf(image: str) -> None:
    write(image + "/etc/ld.so.conf.d/a.conf", "/opt/x\n" * 20_000)


def many_confs(image: str) -> None:
    first = write(image + "/etc/ld.so.conf.d/0.conf", "/opt/x\n" * 9_000)
    for number in range(1, 20):
        os.link(first, f"{image}/etc/ld.so.conf.d/{number}.conf")


def sparse_cache(image: str) -> None:
    os.truncate(write(image + "/etc/ld.so.cache", "libcuda.so"), 1 << 42)


def one_text_in_many_entries(image: str) -> None:
    """Entries of 24 bytes that all name one path of 4,000 bytes."""
    count, head = 100_000, 48
    key = head + 24 * count
    entry = b"".join(n.to_bytes(4, "little") for n in (0x0300, key, key + 13, 0, 0, 0))
    front = ldcache.MAGIC + count.to_bytes(4, "little") + b"\0" * 24
    text = b"libcuda.so.1\0/" + b"x" * 4000 + b"\0"
    with open(write(image + "/etc/ld.so.cache", ""), "wb") as file:
        file.write(front + entry * count + text)


def links_of_many_steps(image: str) -> None:
    """Each path through them is 40 links of 1,300 steps."""
    for number in range(40):
        os.symlink("./" * 1300 + f"link{number + 1}", f"{image}/opt/link{number}")
    os.makedirs(image + "/opt/link40")
    write(image + "/etc/ld.so.conf", "/opt/link0\n/opt/link0/\n")


@pytest.mark.parametrize(
    ("large", "expected"),
    [
        (many_folders, "the image: more than 1024 library folders"),
        (large_conf, "/etc/ld.so.conf.d/a.conf in the image: more than 65536 bytes"),
        (many_confs, "/etc/ld.so.conf.d in the image: more than 1048576 bytes in ld.so.conf"),
        (sparse_cache, "/etc/ld.so.cache in the image: more than 16777216 bytes"),
        (one_text_in_many_entries, "/etc/ld.so.cache in the image: more than 1024 entries"),
        (links_of_many_steps, "/opt/link0/ in the image: more than 65536 paths"),
    ],
)
def test_an_image_past_the_bounds_is_refused(
    image: str, tmp_path: Any, large: Callable[[str], None], expected: str
) -> None:
    """If the search stopped there, a driver hidden behind the bounds would stay uncovered."""
    large(image)
    with pytest.raises(VcudaError) as raised:
        found(tmp_path)
    assert str(raised.value).startswith(expected), str(raised.value)


def test_a_driver_behind_long_lists_is_found(image: str, tmp_path: Any) -> None:
    last = library(image, "/opt/999/lib")
    write(image + "/etc/ld.so.conf", "".join(f"/opt/{n}/lib\n" for n in range(1000)))
    assert found(tmp_path) == {last: "libcuda.so.1"}
    steps = f"/opt{'/.' * 400}/999/lib"
    os.unlink(image + "/etc/ld.so.conf")
    assert found(tmp_path, f"LD_LIBRARY_PATH={steps}") == {last: "libcuda.so.1"}


@pytest.mark.parametrize("spec", [{}, [], None, {"root": {}}, {"root": {"path": "nowhere"}}])
def test_a_spec_without_a_root_has_none(spec: Any, tmp_path: Any) -> None:
    assert found_by(spec, tmp_path) == {}


def test_a_folder_that_is_swapped_for_a_link_meanwhile_never_leads_out(
    image: str, tmp_path: Any
) -> None:
    """A path that is checked and then used is followed out of the image within a few tries."""
    outside = f"{tmp_path}/outside"
    write(outside + "/libcuda.so.1", "")
    compat = image + "/usr/local/cuda/compat"
    os.makedirs(compat)
    os.symlink(outside, image + "/usr/local/cuda/link")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(compat, compat + ".away")
            os.rename(image + "/usr/local/cuda/link", compat)
            os.rename(compat, image + "/usr/local/cuda/link")
            os.rename(compat + ".away", compat)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        assert [found(tmp_path) for _ in range(500)] == [{}] * 500
    finally:
        stop.set()
        swapping.join()
