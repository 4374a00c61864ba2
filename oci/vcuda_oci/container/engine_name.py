"""Where the engine stores a container's name and image: the claim records the place, and the
commands that show the container read both there."""

from __future__ import annotations

import os

from ..model import names
from .container import Container
from .identity import image_may_annotate, is_from_crio

NAME, FILE, IMAGE = "name", "file", "image"
_OF_DOCKER = ("/hosts", "/hostname", "/resolv.conf")
_MOST, _MOST_IMAGE = 128, 256
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_SAFE_IMAGE = _SAFE | frozenset("/:@+")


def noted(container: Container) -> dict[str, str]:
    """{NAME: the name} or {FILE: the engine's file that contains it}; of a pod's container, which
    has the pod's name, {IMAGE: its image}; {}: unknown.

    containerd and CRI-O write a pod's image as an annotation, nerdctl its container's name. Docker
    mounts files from the folder that has its config.v2.json. Podman's bundle is below the folder
    that has its containers.json. Source: containerd pkg/cri/annotations; CRI-O pkg/annotations;
    nerdctl pkg/labels; moby daemon/container_operations_unix.go; containers/storage containers.go.
    """
    id, bundle = container.id, container.bundle
    if container.is_pod:
        key = names.CRIO_IMAGE if is_from_crio(container.annotations) else names.CONTAINERD_IMAGE
        image = container.annotations.get(key, "")
        return {IMAGE: image} if is_image(image) else {}
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


def is_image(text: object) -> bool:
    """Whether it can be a reference to an image, such as "docker.io/library/debian:12"."""
    return isinstance(text, str) and 0 < len(text) <= _MOST_IMAGE and _SAFE_IMAGE.issuperset(text)
