"""Bounds on bytes and time of a search through an image."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from vcuda_oci.guest import tree
from vcuda_oci.model.errors import VcudaError

MIB = 1 << 20


def test_bytes_of_all_files_together_are_bounded(tmp_path: Any) -> None:
    with open(tmp_path / "file", "wb") as file:
        file.truncate(8 * MIB)
    with tree.Tree(str(tmp_path)) as image:
        assert len(image.read("/file", 8 * MIB)) == len(image.read("/file", 8 * MIB)) == 8 * MIB
        with pytest.raises(VcudaError, match=r"^/file in the image: more than 20971520 bytes"):
            image.read("/file", 8 * MIB)


@pytest.mark.parametrize(
    "look", [lambda image: image.file("/file"), lambda image: image.names("/")]
)
def test_image_is_refused_after_twenty_seconds(monkeypatch: Any, tmp_path: Any, look: Any) -> None:
    (tmp_path / "file").touch()
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with tree.Tree(str(tmp_path)) as image:
        now = 119.9
        assert look(image)
        now = 120.1
        with pytest.raises(VcudaError, match="searching the image took more than 20 s"):
            look(image)


@pytest.mark.parametrize(
    "files, size, is_bounded",
    [(10, MIB, False), (10, MIB + 1, True), (5000, 1, True)],
    ids=["small", "many bytes", "many names"],
)
def test_memory_is_bounded_once_an_image_is_large(
    tmp_path: Any, files: int, size: int, is_bounded: bool
) -> None:
    for number in range(files):
        (tmp_path / str(number)).touch()
    with open(tmp_path / "0", "wb") as file:
        file.truncate(size)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with tree.Tree(str(tmp_path)) as image:
        image.names("/")
        image.read("/0", 2 * MIB)
        assert (resource.getrlimit(resource.RLIMIT_AS) != before) is is_bounded
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_an_image_that_takes_too_much_memory_is_refused_in_one_line(tmp_path: Any) -> None:
    with open(tmp_path / "file", "wb") as file:
        file.truncate(2 * MIB)
    refused = pytest.raises(VcudaError, match=r"^the image: takes more than 256 MiB")
    with refused, tree.Tree(str(tmp_path)) as image:
        _ = image.read("/file", 2 * MIB) * 200
