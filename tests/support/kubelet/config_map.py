"""A ConfigMap's volume as a kubelet lays it out and updates it.

Source: Kubernetes, pkg/volume/util/atomic_writer.go. Seen on a 1.36.2 node: the volume's folder has
mode 0777, and a pod sees it on a read-only mount.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping


class ConfigMapVolume:
    def __init__(self, folder: str, data: Mapping[str, str]) -> None:
        self.folder = folder
        self._numbers = itertools.count(1)
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o777)
        self.update(data)

    def update(self, data: Mapping[str, str]) -> None:
        """One rename of ..data changes all files at once; the old folder is removed after it."""
        number = next(self._numbers)
        fresh = f"..2026_11_22_21_00_00.{number}"
        os.mkdir(f"{self.folder}/{fresh}")
        os.chmod(f"{self.folder}/{fresh}", 0o755)
        for name, text in data.items():
            path = f"{self.folder}/{fresh}/{name}"
            with open(path, "w") as file:
                file.write(text)
            os.chmod(path, 0o644)
        data_link = f"{self.folder}/..data"
        before = os.readlink(data_link) if os.path.islink(data_link) else ""
        os.symlink(fresh, data_link + "_tmp")
        os.rename(data_link + "_tmp", data_link)
        for name in data:
            if not os.path.lexists(f"{self.folder}/{name}"):
                os.symlink(f"..data/{name}", f"{self.folder}/{name}")
        if before:
            shutil.rmtree(f"{self.folder}/{before}")
