"""A host folder that hostile images point at: no file in it may be read, created or changed."""

from __future__ import annotations

import hashlib
import os

SECRET = "only the host knows this"


class Trap:
    """folder: holds the files that an image points at. `changed` compares whole inodes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        os.makedirs(folder + "/folder")
        names = ("secret", "libcuda.so.1", "libcuda.so.550.54.14", "null", "nvidia0")
        for name in (*names, "folder/secret"):
            with open(f"{folder}/{name}", "w") as file:
                file.write(SECRET)
        self._before = inodes(folder)

    def changed(self) -> list[str]:
        """Names of files below that are new, removed or changed."""
        after = inodes(self.folder)
        paths = {path for path, _ in self._before.items() ^ after.items()}
        return sorted(os.path.relpath(path, self.folder) for path in paths)

    def harmed(self) -> list[str]:
        """The same, without new empty files."""
        found = []
        for name in self.changed():
            path = os.path.join(self.folder, name)
            if not os.path.isdir(path) and (path in self._before or os.path.getsize(path) > 0):
                found.append(name)
        return found


def inodes(folder: str) -> dict[str, tuple[object, ...]]:
    """Metadata and content of every file below, without access times."""
    found: dict[str, tuple[object, ...]] = {}
    for place, folders, names in os.walk(folder):
        for path in [place, *(os.path.join(place, name) for name in folders + names)]:
            status = os.lstat(path)
            found[path] = (*_same(status), sha256(path) if os.path.isfile(path) else "")
    return found


def _same(status: os.stat_result) -> tuple[object, ...]:
    owner = (status.st_uid, status.st_gid, status.st_mode, status.st_nlink, status.st_rdev)
    return (status.st_dev, status.st_ino, *owner, status.st_mtime_ns, status.st_ctime_ns)


def sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
