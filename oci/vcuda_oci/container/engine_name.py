"""Where the engine stores a container's name: the claim records the place, and the commands that
show the container read the name there."""

from __future__ import annotations

import os

from ..model import names
from .container import Container
from .identity import image_may_annotate

NAME, FILE = "name", "file"
_OF_DOCKER = ("/hosts", "/hostname", "/resolv.conf")
_MOST = 128
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def noted(container: Container) -> dict[str, str]:
    """{NAME: the name} or {FILE: the engine's file that contains it}; {}: unknown.

    nerdctl writes an annotation. Docker mounts files from the folder that has its config.v2.json.
    Podman's bundle is below the folder that has its containers.json. Source: nerdctl pkg/labels;
    moby daemon/container_operations_unix.go; containers/storage containers.go.
    """
    id, bundle = container.id, container.bundle
    name = container.annotations.get(names.NERDCTL_NAME, "")
    if is_name(name) and not image_may_annotate(container.annotations):
        return {NAME: name}
    if bundle.endswith(f"-containers/{id}/userdata"):
        return {FILE: os.path.dirname(os.path.dirname(bundle)) + "/containers.json"}
    for mount in container.mounts:
        if mount.source.endswith(_OF_DOCKER):
            folder = os.path.dirname(mount.source)
            if folder.endswith(f"/{id}") and folder.startswith("/"):
                return {FILE: folder + "/config.v2.json"}
    return {}


def is_name(text: object) -> bool:
    """Whether engines allow this as a name, and it does not look like an id."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= _MOST
        and text[0] not in "._-"
        and _SAFE.issuperset(text)
        and not (len(text) >= 12 and not text.strip("0123456789abcdef"))
    )
