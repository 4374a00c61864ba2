"""How the labels of the node's GPUs get onto the node: by a file that Node Feature Discovery makes
labels of, or by the API.

Source: node-feature-discovery, "Customization guide", "Local feature source": a line is key=value,
and a file whose name begins with a dot is passed over.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from vcuda_oci import config, files

from . import node_labels

if TYPE_CHECKING:
    from vcuda_oci.config import Config

    from .inventory import Inventory

FEATURES_DIR = "/etc/kubernetes/node-feature-discovery/features.d"
NAME = "vcuda"
_CORE_UNITS = 100  # of each GPU

_log = logging.getLogger(__name__)


class Labelling:
    """folder: where Node Feature Discovery looks."""

    def __init__(self, settings: Config, folder: str) -> None:
        self._folder = folder
        split = settings.gpu_split if settings.gpu_resource else 1
        self._replicas = _CORE_UNITS if settings.core_resource else split
        way = settings.labels
        if way == config.AUTO:
            way = config.NFD if os.path.isdir(folder) else config.API
        self._by_file, self._by_api = way == config.NFD, way == config.API

    def tell(self, seen: Inventory) -> dict[str, str | None]:
        """Write the file if it is by file; what the API is to be told otherwise, None of a label
        that goes."""
        labels = node_labels.labels(seen.gpus, seen.driver, seen.cuda, self._replicas)
        if self._by_file:
            try:
                _write(self._folder, labels)
            except OSError as error:
                _log.warning("%s: labels not written: %s", self._folder, error.strerror)
        return {key: labels.get(key) for key in node_labels.KEYS} if self._by_api else {}


def _write(folder: str, labels: dict[str, str]) -> None:
    """The labels there are; without any, no file. Raises OSError."""
    path, draft = f"{folder}/{NAME}", f"{folder}/.{NAME}"
    if not labels:
        files.remove(path)
        return
    lines = "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))
    # Written under a name that is passed over, and then there as a whole.
    files.replace(draft, lines.encode(), 0o644)
    os.replace(draft, path)
