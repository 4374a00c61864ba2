"""A link swapped into a container's root at any moment leads no program out of the root."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vcuda_hook.hooks import root_paths


class ContainerRoot:
    """root: a container's, by descriptor. outside: a folder of the host's that none may touch."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "root", folder / "outside"
        (self.inside / "etc").mkdir(parents=True)
        (self.outside / "folder").mkdir(parents=True)
        (self.outside / "file").write_text("the host's")
        self.descriptor = os.open(self.inside, os.O_PATH | os.O_DIRECTORY)
        self.root = root_paths.Root(self.descriptor)
        self.before = self.listing()

    def listing(self) -> list[str]:
        return sorted(str(path) for path in self.outside.rglob("*"))


@pytest.fixture
def container_root(tmp_path: Path) -> Iterator[ContainerRoot]:
    container_root = ContainerRoot(tmp_path)
    yield container_root
    os.close(container_root.descriptor)
    assert container_root.listing() == container_root.before
    assert (container_root.outside / "file").read_text() == "the host's"


def right_after(
    patch: pytest.MonkeyPatch, owner: Any, name: str, then: Callable[[], object]
) -> None:
    """Change something when `owner.name` has been called the first time, before it returns."""
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


# Right after a step, where a link stands then, of what it leads to, and what the next step says.
MOMENTS = {
    "was missing, link to a file": (root_paths.Root, "open_path", "file", errno.EEXIST),
    "was missing, link to nothing": (root_paths.Root, "open_path", "missing", errno.EEXIST),
    "a file was made": (os, "open", "file", errno.ELOOP),
    "a folder was made": (os, "mkdir", "folder", errno.ELOOP),
    "a folder on the way was made": (os, "mkdir", "folder", errno.ELOOP),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_link_at_the_wrong_moment_is_not_followed(
    container_root: ContainerRoot, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    owner, step, target, answer = MOMENTS[moment]
    place, path = container_root.inside / "etc/new", "/etc/new"
    right_after(
        monkeypatch, owner, step, lambda: replace_by_link(place, container_root.outside / target)
    )
    make = container_root.root.make_folder if step == "mkdir" else container_root.root.make_file
    with pytest.raises(OSError) as refused:
        make(path + "/deeper" * ("on the way" in moment))
    assert refused.value.errno == answer


def test_a_link_that_was_there_before_leads_to_a_place_inside(
    container_root: ContainerRoot,
) -> None:
    (container_root.inside / "outside").mkdir()
    (container_root.inside / "etc/way").symlink_to("/outside")
    made = container_root.root.make_folder("/etc/way/folder")
    assert os.readlink(f"/proc/self/fd/{made}") == str(container_root.inside / "outside/folder")
    os.close(made)
