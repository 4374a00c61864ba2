"""Sets the node's GPU labels, through a file for Node Feature Discovery or through the API.

Source: node-feature-discovery, "Customization guide", "Local feature source": each line is
key=value, and files with a leading dot in their name are ignored.
"""

from __future__ import annotations

import logging
import os

from vcuda_oci.system import files, settings_file
from vcuda_oci.system.settings_file import Config

from . import node_labels
from .inventory import Inventory

FEATURES_DIR = "/etc/kubernetes/node-feature-discovery/features.d"
NAME = "vcuda"
_CORE_UNITS = 100  # of each GPU

_log = logging.getLogger(__name__)


class Labelling:
    """Sets the node's labels. folder: the folder from which Node Feature Discovery reads files."""

    def __init__(self, settings: Config, folder: str) -> None:
        self._folder = folder
        split = settings.gpu_split if settings.gpu_resource else 1
        self._replicas = _CORE_UNITS if settings.core_resource else split
        method = settings.labels
        if method == settings_file.AUTO:
            method = settings_file.NFD if os.path.isdir(folder) else settings_file.API
        self._by_file, self._by_api = method == settings_file.NFD, method == settings_file.API

    def update(self, seen: Inventory) -> dict[str, str | None]:
        """Update the file, or return the labels for the API if they are set through the API.

        A value of None removes the label. Empty if nothing is to be set through the API.
        """
        labels = node_labels.labels(seen.gpus, seen.driver, seen.cuda, self._replicas)
        if self._by_file:
            try:
                _write(self._folder, labels)
            except OSError as error:
                _log.warning("%s: labels not written: %s", self._folder, error.strerror)
        return {key: labels.get(key) for key in node_labels.KEYS} if self._by_api else {}


def _write(folder: str, labels: dict[str, str]) -> None:
    """Write the labels; without any, remove the file. Raises OSError."""
    path, draft = f"{folder}/{NAME}", f"{folder}/.{NAME}"
    if not labels:
        files.remove(path)
        return
    lines = "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))
    # Write under an ignored name, then rename: Node Feature Discovery never reads half a file.
    files.replace(draft, lines.encode(), 0o644)
    os.replace(draft, path)
