"""The command line and the bundle of an OCI runtime, read as runc and crun read them."""

from __future__ import annotations

import os

from . import files, jsontree
from .errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CREATING = ("create", "run", "restore")
# Options that take the next word as their value. Source: runc 1.1 and crun 1.8 --help.
# oci/launcher/arguments.h has the same list; a test compares them.
GLOBAL_VALUES = ("log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager")
CREATE_VALUES = (
    "bundle",
    "b",
    "console-socket",
    "pid-file",
    "preserve-fds",
    "config",
    "f",
    "image-path",
    "work-path",
    "parent-path",
    "manage-cgroups-mode",
    "empty-ns",
    "status-fd",
    "lsm-profile",
    "lsm-mount-context",
    "page-server",
    "tcp-established",
)


class Command:
    """One call of the runtime: its words, and what matters of them.

    verb: "" where there is none. container_id: "" where none is given.
    """

    def __init__(self, words: list[str]) -> None:
        options, position = _options(words, 0, GLOBAL_VALUES, stop=True)
        self.words = words
        self.global_words = words[:position]
        self.log = options.get("log", "")
        self.log_format = options.get("log-format", "text")
        self.verb = words[position] if position < len(words) else ""
        self.container_id, self.config_path = "", ""
        if self.verb in CREATING:
            options, _ = _options(words, position + 1, CREATE_VALUES, stop=False)
            self.container_id = options.get("", "")
            folder = options.get("bundle", options.get("b", "."))
            name = options.get("config", options.get("f", "config.json"))
            self.config_path = os.path.join(os.path.abspath(folder), name)

    @property
    def creates(self) -> bool:
        return self.verb in CREATING


def _options(
    words: list[str], position: int, with_value: tuple[str, ...], stop: bool
) -> tuple[dict[str, str], int]:
    """Options from `position` on, and where they end: at the first plain word if `stop`.

    Otherwise the first plain word, the container's id, stands under the name "".
    """
    found: dict[str, str] = {}
    while position < len(words):
        word = words[position]
        if len(word) < 2 or word[0] != "-":
            if stop:
                break
            found.setdefault("", word)
        elif word == "--":
            if not stop and position + 1 < len(words):
                found.setdefault("", words[position + 1])
            return found, position + 1
        else:
            name, equals, value = word.lstrip("-").partition("=")
            if not equals and name in with_value and position + 1 < len(words):
                position += 1
                value = words[position]
            found[name] = value
        position += 1
    return found, position


def load_config(path: str) -> Any:
    """The bundle's config.json as a tree. Raises VcudaError: unreadable, or no JSON."""
    try:
        return jsontree.loads(files.read(path).decode())
    except OSError as error:
        raise VcudaError(
            f"cannot be read: {error.strerror}", path, "name the bundle with --bundle"
        ) from error
    except ValueError as error:
        raise VcudaError(
            f"is not JSON: {error}", path, "mend it, or let the engine write it"
        ) from error


def replace_config(path: str, spec: Any) -> None:
    """Write beside, fsync, rename, under the old file's mode. Raises VcudaError: no space."""
    try:
        mode = os.lstat(path).st_mode & 0o777
        files.replace(path, jsontree.dumps(spec).encode(), mode, sync=True)
    except OSError as error:
        raise VcudaError(
            f"cannot be replaced: {error.strerror}", path, "free space on its file system"
        ) from error
