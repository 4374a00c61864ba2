"""An image is searched without following its links out of the root."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import Any

import pytest

from support.files import write
from vcuda_oci.container import image_libraries
from vcuda_oci.container.container import container_of
from vcuda_oci.guest.tree import Tree
from vcuda_oci.system import machine


def folder_of(bundle: Any, root: Any = "rootfs") -> str:
    return folder_in({"root": {"path": root}}, str(bundle))


def folder_in(spec: Any, bundle: str) -> str:
    with Tree(container_of(spec, "", bundle).rootfs) as image:
        return image_libraries.library_folder(image)


@pytest.mark.parametrize(
    ("folders", "links", "expected"),
    [
        (["usr/lib/x86_64-linux-gnu", "usr/lib64"], {}, "/usr/lib/x86_64-linux-gnu"),
        (["usr/lib/aarch64-linux-gnu", "usr/lib64"], {}, "/usr/lib64"),
        (["usr/lib64", "usr/lib"], {"lib64": "usr/lib64"}, "/usr/lib64"),
        (["lib64", "usr/lib"], {}, "/lib64"),
        (["usr/lib"], {"lib64": "usr/lib"}, "/usr/lib"),
        (["usr/lib"], {"usr/lib64": "lib"}, "/usr/lib"),
        ([], {}, "/usr/lib64"),
        (["other"], {"usr": "other"}, "/usr/lib64"),
    ],
    ids=["Debian", "of arm64", "RHEL", "old", "Arch", "lib64 is a link", "empty", "usr links"],
)
def test_the_loaders_folder_is_found_by_the_images_layout(
    tmp_path: Any, folders: list[str], links: dict[str, str], expected: str
) -> None:
    os.makedirs(tmp_path / "rootfs")
    for folder in folders:
        os.makedirs(tmp_path / "rootfs" / folder)
    for name, target in links.items():
        os.symlink(target, tmp_path / "rootfs" / name)
    assert folder_of(tmp_path) == folder_of("/elsewhere", f"{tmp_path}/rootfs") == expected


@pytest.mark.parametrize("machine_of", [machine.AMD64, machine.ARM64], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("libc", "folders", "links"),
    [
        ("/usr/lib/MULTIARCH", ["/usr/lib64"], {"lib": "usr/lib", "lib64": "usr/lib64"}),
        ("/lib/MULTIARCH", ["/lib64"], {}),
        ("/lib/MULTIARCH", ["/lib64", "/usr/lib64", "/usr/lib/MULTIARCH"], {}),
        ("/usr/lib64", ["/usr/lib"], {"lib64": "usr/lib64", "lib": "usr/lib"}),
        ("/lib64", ["/usr/lib64", "/usr/lib", "/lib"], {}),
        ("/usr/lib", [], {"lib": "usr/lib", "lib64": "usr/lib", "usr/lib64": "lib"}),
        ("/lib", ["/usr/lib"], {"lib64": "lib"}),
    ],
    ids=["Debian", "no /usr/lib", "split /usr", "RHEL", "Gentoo", "Arch", "busybox:glibc"],
)
def test_the_driver_is_given_beside_the_images_libc(
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    machine_of: machine.Machine,
    libc: str,
    folders: list[str],
    links: dict[str, str],
) -> None:
    monkeypatch.setattr(machine, "THIS", machine_of)
    multiarch = f"{machine_of.name}-linux-gnu"
    root = f"{tmp_path}/rootfs"
    for folder in (libc, *folders):
        os.makedirs(root + folder.replace("MULTIARCH", multiarch))
    for name, target in links.items():
        os.symlink(target, f"{root}/{name}")
    expected = libc.replace("MULTIARCH", multiarch)
    write(f"{root}{expected}/libc-2.31.so", "")
    os.symlink("libc-2.31.so", f"{root}{expected}/libc.so.6")
    assert folder_of(tmp_path) == expected


@pytest.mark.parametrize("part", ["usr", "usr/lib", "usr/lib/x86_64-linux-gnu"])
def test_a_link_out_of_the_image_is_not_followed(tmp_path: Any, part: str) -> None:
    """With the link followed, the host's own folder would be answered, and mounted over."""
    os.makedirs(tmp_path / "host" / "lib" / "x86_64-linux-gnu")
    os.makedirs(tmp_path / "rootfs" / os.path.dirname(part))
    target = tmp_path / "host" / os.path.relpath(part, "usr")
    os.symlink(target, tmp_path / "rootfs" / part)
    assert os.path.isdir(tmp_path / "rootfs" / "usr/lib/x86_64-linux-gnu")
    assert folder_of(tmp_path) != "/usr/lib/x86_64-linux-gnu"


@pytest.mark.parametrize(
    "spec",
    [
        {},
        [],
        None,
        {"root": []},
        {"root": {"path": 5}},
        {"root": {"path": "a\0b"}},
        {"root": {"path": "\ud800"}},
    ],
)
def test_a_spec_without_a_root_gets_an_answer_too(spec: Any) -> None:
    assert folder_in(spec, "/b") == "/usr/lib64"
    assert folder_of("/nowhere") == "/usr/lib64"


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(open_descriptors()) + 100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_descriptors() -> list[int]:
    return sorted(map(int, os.listdir("/proc/self/fd")))


@pytest.mark.usefixtures("few_descriptors")
def test_an_image_of_many_folders_and_links_is_walked_to_its_end(tmp_path: Any) -> None:
    """With each of its folders open, a libcuda in the last ones would not be seen."""
    for number in range(200):
        write(f"{tmp_path}/opt/{number}/lib/libcuda.so.1", "")
        os.symlink(f"{number}/lib", tmp_path / f"opt/link{number}")
    before = open_descriptors()
    with Tree(str(tmp_path)) as tree:
        for number in range(200):
            folder = f"/opt/{number}/lib"
            assert tree.folder(f"/opt/link{number}") == tree.folder(folder) == folder
            assert tree.files(folder, ["libcuda.so.1", "other"]) == {
                f"{folder}/libcuda.so.1": "libcuda.so.1"
            }
            assert tree.file(f"/opt/../opt/link{number}/libcuda.so.1") == folder + "/libcuda.so.1"
            assert tree.folder(f"/opt/{number}/none") == ""
    assert open_descriptors() == before


def test_only_files_are_found_also_behind_links_and_in_the_root(tmp_path: Any) -> None:
    write(f"{tmp_path}/at", "")
    write(f"{tmp_path}/lib/file", "")
    os.makedirs(tmp_path / "lib/folder")
    for name, target in (("link", "file"), ("far", "/at"), ("lost", "none"), ("up", "..")):
        os.symlink(target, tmp_path / "lib" / name)
    names = ["file", "folder", "link", "far", "lost", "up", "none"]
    with Tree(str(tmp_path)) as tree:
        assert tree.files("/", ["at", "lib"]) == {"/at": "at"}
        found = {"/lib/file": "link", "/at": "far"}
        assert tree.files("/lib", names) == found
        assert tree.files("/none", names) == {}


def test_cached_path_equals_the_looked_up_one(tmp_path: Any) -> None:
    write(f"{tmp_path}/usr/lib/libcuda.so.1", "ours")
    os.symlink("usr/lib", tmp_path / "lib")
    os.symlink("../lib/libcuda.so.1", tmp_path / "usr/libcuda.so")
    paths = ["/lib", "/lib/..", "/lib/../lib", "/usr/../lib/.", "/", "/..", "/usr/libcuda.so"]
    paths += ["/lib/libcuda.so.1", "/lib/libcuda.so.1/x", "/none", "/none/..", "/usr/none/../lib"]
    fresh = []
    for path in paths:
        with Tree(str(tmp_path)) as tree:
            fresh.append((tree.folder(path), tree.file(path), tree.read(path, 9)))
    assert fresh[:2] == [("/usr/lib", "", b""), ("/usr", "", b"")]
    assert fresh[6] == fresh[7] == ("", "/usr/lib/libcuda.so.1", b"ours")
    assert fresh[8:] == [("", "", b"")] * 4
    with Tree(str(tmp_path)) as tree:
        for _ in range(2):
            again = [(tree.folder(path), tree.file(path), tree.read(path, 9)) for path in paths]
            assert again == fresh
