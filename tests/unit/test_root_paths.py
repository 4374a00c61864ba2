"""Whoever puts a link into a container's root at the wrong moment leads nobody out of it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vcuda_hook import root_paths


class Ground:
    """root: a container's, by descriptor. outside: a folder of the host's that none may touch."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "root", folder / "outside"
        (self.inside / "etc").mkdir(parents=True)
        (self.outside / "folder").mkdir(parents=True)
        (self.outside / "file").write_text("the host's")
        self.root = os.open(self.inside, os.O_PATH | os.O_DIRECTORY)
        self.before = self.listing()

    def listing(self) -> list[str]:
        return sorted(str(path) for path in self.outside.rglob("*"))


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = Ground(tmp_path)
    yield ground
    os.close(ground.root)
    assert ground.listing() == ground.before
    assert (ground.outside / "file").read_text() == "the host's"


def right_after(
    patch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], object]
) -> None:
    """Somebody's doing when `owner.name` has been called the first time, before it returns."""
    call, waiting = getattr(owner, name), [then]

    def called(*words: Any, **named: Any) -> Any:
        try:
            return call(*words, **named)
        finally:
            if waiting:
                waiting.pop()()

    patch.setattr(owner, name, called)


def replace_by_link(path: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.rmdir() if path.is_dir() else path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("target", ["file", "missing"])
def test_a_link_where_a_file_was_just_missing_is_not_followed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    place = ground.inside / "etc/new"
    right_after(
        *(monkeypatch, root_paths, "open_path"),
        lambda: replace_by_link(place, ground.outside / target),
    )
    with pytest.raises(OSError) as refused:
        root_paths.make_file(ground.root, "/etc/new")
    assert refused.value.errno == errno.EEXIST


def test_a_link_in_place_of_a_file_that_was_just_made_is_not_followed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ground.inside / "etc/new"
    right_after(*(monkeypatch, os, "open"), lambda: replace_by_link(place, ground.outside / "file"))
    with pytest.raises(OSError) as refused:
        root_paths.make_file(ground.root, "/etc/new")
    assert refused.value.errno == errno.ELOOP


@pytest.mark.parametrize("path", ["/etc/new", "/etc/new/deeper"])
def test_a_link_in_place_of_a_folder_that_was_just_made_is_not_followed(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    place = ground.inside / "etc/new"
    right_after(
        *(monkeypatch, os, "mkdir"), lambda: replace_by_link(place, ground.outside / "folder")
    )
    with pytest.raises(OSError) as refused:
        root_paths.make_folder(ground.root, path)
    assert refused.value.errno == errno.ELOOP


def test_a_link_that_was_there_before_leads_to_a_place_inside(ground: Ground) -> None:
    (ground.inside / "outside").mkdir()
    (ground.inside / "etc/way").symlink_to("/outside")
    made = root_paths.make_folder(ground.root, "/etc/way/folder")
    assert os.readlink(f"/proc/self/fd/{made}") == str(ground.inside / "outside/folder")
    os.close(made)
