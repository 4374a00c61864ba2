"""Where the engine keeps the name that its user gave a container: noted by the claim, which reads
nothing for it, and read when the container is shown."""

from __future__ import annotations

import os

from ..model import names
from .identity import image_may_annotate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NAME, FILE = "name", "file"
_OF_DOCKER = ("/hosts", "/hostname", "/resolv.conf")
_MOST = 128
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def noted(spec: Any, annotations: Mapping[str, str], bundle: str, id: str) -> dict[str, str]:
    """{NAME: the name itself} or {FILE: the engine's file that has it}; {}: neither is known.

    nerdctl annotates its containers. Docker mounts files of the folder where its own description
    of the container lies. Podman's bundle lies beside the list of its containers. Source: nerdctl
    pkg/labels; moby daemon/container_operations_unix.go; containers/storage containers.go.
    """
    said = annotations.get(names.NERDCTL_NAME, "")
    if is_name(said) and not image_may_annotate(annotations):
        return {NAME: said}
    if bundle.endswith(f"-containers/{id}/userdata"):
        return {FILE: os.path.dirname(os.path.dirname(bundle)) + "/containers.json"}
    mounts = spec.get("mounts") if isinstance(spec, dict) else None
    for mount in mounts if isinstance(mounts, list) else ():
        source = mount.get("source") if isinstance(mount, dict) else None
        if isinstance(source, str) and source.endswith(_OF_DOCKER):
            folder = os.path.dirname(source)
            if folder.endswith(f"/{id}") and folder.startswith("/"):
                return {FILE: folder + "/config.v2.json"}
    return {}


def is_name(text: object) -> bool:
    """Whether it is a name as engines allow them, and not what would pass for an id."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= _MOST
        and text[0] not in "._-"
        and _SAFE.issuperset(text)
        and not (len(text) >= 12 and not text.strip("0123456789abcdef"))
    )
