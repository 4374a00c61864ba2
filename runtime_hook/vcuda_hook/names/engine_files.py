"""Names and images of containers in the files of their engines.

An engine's file belongs to root and is read whole when it has changed; users chose its content.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from vcuda_oci.container import engine_name

_MOST_BYTES = 8 << 20
_MOST_FILES = 1000
_OF_PODMAN, _WITH_RM = "/containers.json", "/volatile-containers.json"


class Described(NamedTuple):
    """What the engine says of one container; "": unknown, or not to be shown."""

    name: str = ""
    image: str = ""


# By an engine's file: its stamp when it was read, and its containers by id.
_known: dict[str, tuple[tuple[int, ...], dict[str, Described]]] = {}


def described(container_id: str, noted: Mapping[str, str]) -> Described:
    """The engine's name and image of a container. noted: see vcuda_oci.container.engine_name."""
    found = Described()
    for path in _files(noted.get(engine_name.FILE, "")):
        found = _containers_in(path).get(container_id, found)
    name = noted.get(engine_name.NAME, "") or found.name
    image = noted.get(engine_name.IMAGE, "") or found.image
    return Described(
        name if engine_name.is_name(name) else "", image if engine_name.is_image(image) else ""
    )


def _files(noted: str) -> Iterator[str]:
    """Podman has two lists, the second one of containers that were started with --rm.

    Source: containers/storage containers.go; Podman 4.3 has one list only.
    """
    if noted:
        yield noted
    if noted.endswith(_OF_PODMAN):
        yield noted.removesuffix(_OF_PODMAN) + _WITH_RM


def _containers_in(path: str) -> dict[str, Described]:
    """The containers in the file, read again when it has changed; {}: none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return {}
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != 0 or about.st_size > _MOST_BYTES:
            return {}
        stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
        known = _known.get(path)
        if known is None or known[0] != stamp:
            if len(_known) >= _MOST_FILES:
                _known.clear()
            known = _known[path] = stamp, _parse(os.pread(fd, _MOST_BYTES, 0))
        return known[1]
    except OSError:
        return {}
    finally:
        os.close(fd)


def _parse(text: bytes) -> dict[str, Described]:
    """Parse Docker's description of one container, or containers/storage's list of all."""
    tree = _tree(text)
    if isinstance(tree, dict):
        config = tree.get("Config")
        image = config.get("Image") if isinstance(config, dict) else ""
        name = _text(tree.get("Name")).removeprefix("/")
        return {str(tree.get("ID")): Described(name, _text(image))}
    found = {}
    for entry in tree if isinstance(tree, list) else ():
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            continue
        names, metadata = entry.get("names"), _tree(_text(entry.get("metadata")))
        image = metadata.get("image-name") if isinstance(metadata, dict) else ""
        name = names[0] if isinstance(names, list) and names else ""
        found[entry["id"]] = Described(_text(name), _text(image))
    return found


def _tree(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
