"""The image is looked at and never followed."""

from __future__ import annotations

import os
from typing import Any

import pytest

from vcuda_oci import rootfs


def folder_of(bundle: Any, root: Any = "rootfs") -> str:
    return rootfs.library_folder({"root": {"path": root}}, str(bundle))


@pytest.mark.parametrize(
    ("folders", "links", "expected"),
    [
        (["usr/lib/x86_64-linux-gnu", "usr/lib64"], {}, "/usr/lib/x86_64-linux-gnu"),
        (["usr/lib/aarch64-linux-gnu"], {}, "/usr/lib/aarch64-linux-gnu"),
        (["usr/lib64", "usr/lib"], {"lib64": "usr/lib64"}, "/usr/lib64"),
        (["lib64", "usr/lib"], {}, "/lib64"),
        (["usr/lib"], {"lib64": "usr/lib"}, "/usr/lib"),
        (["usr/lib"], {"usr/lib64": "lib"}, "/usr/lib"),
        ([], {}, "/usr/lib64"),
        (["other"], {"usr": "other"}, "/usr/lib64"),
    ],
    ids=["Debian", "Debian on ARM", "RHEL", "old", "Arch", "lib64 is a link", "empty", "usr links"],
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
        *({}, [], None, {"root": []}, {"root": {"path": 5}}),
        *({"root": {"path": "a\0b"}}, {"root": {"path": "\ud800"}}),
    ],
)
def test_a_spec_without_a_root_gets_an_answer_too(spec: Any) -> None:
    assert rootfs.library_folder(spec, "/b") == "/usr/lib64"
    assert folder_of("/nowhere") == "/usr/lib64"
