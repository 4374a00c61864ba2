"""Parse the command line and the bundle of an OCI runtime as runc and crun do."""

from __future__ import annotations

import os

from ..model import jsontree
from ..model.errors import VcudaError
from ..system import files, own_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TURN_SECONDS = 30.0

CREATING = ("create", "run", "restore")
# Options that take the next word as their value. Source: runc 1.1 and crun 1.8 --help.
# oci/launcher/handover/arguments.c has the same lists; a test compares them.
GLOBAL_VALUES = ("log", "log-format", "log-level", "root", "criu", "rootless", "cgroup-manager")
CREATE_VALUES = (
    "bundle",
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
)


# Engines copy an image's variables and labels into config.json; execve takes 2 MiB of variables.
_MOST_BYTES = 16 << 20
# A larger text is parsed within a bound of memory: its tree takes up to 25 times as much.
_SMALL_BYTES = 1 << 20


class Command:
    """One command line of the runtime, parsed.

    words: all arguments. verb, container_id: "" if missing. root: "": the runtime's default.
    bundle, config_path: valid from the working folder of the call.
    """

    def __init__(self, words: list[str]) -> None:
        options, position = _options(words, 0, GLOBAL_VALUES)
        self.words = words
        self.root = options.get("root", "")
        self.log = options.get("log", "")
        self.log_format = options.get("log-format", "text")
        self.verb = words[position] if position < len(words) else ""
        self.container_id, self.bundle, self.config_path = "", "", ""
        # `run --keep`: the engine calls `delete` later, possibly after it has unmounted the root.
        self.is_kept = False
        if self.verb in CREATING:
            options, _ = _options(words, position + 1, CREATE_VALUES)
            self.container_id = options.get("", "")
            self.is_kept = self.verb == "run" and "keep" in options
            self.bundle = options.get("bundle") or "."
            self.config_path = options.get("config", "config.json")
            # crun opens any other name relative to its working folder, not to the bundle.
            if self.config_path == "config.json":
                self.config_path = os.path.join(self.bundle, "config.json")

    @property
    def creates(self) -> bool:
        return self.verb in CREATING

    def state_query(self, runtime: str, folder: str = "") -> list[str]:
        """The command line of a query for a container's state, up to the verb.

        folder: the working folder of the call; "": this process's. Contains no global option but
        --root: with --log, a query would write to the log that the engine reads.
        """
        if not self.root:
            return [runtime]
        return [runtime, "--root", os.path.join(folder or os.getcwd(), self.root)]


def _options(
    words: list[str], position: int, with_value: tuple[str, ...]
) -> tuple[dict[str, str], int]:
    """Parse options from `position` on. Return them, and the position where they end.

    The last value of a repeated option counts. Global options end at the first other word, the
    verb. A verb's options may follow other words; the first of those, the container's id, is
    returned under the name "".
    """
    found: dict[str, str] = {}
    is_global = with_value is GLOBAL_VALUES
    while position < len(words):
        word = words[position]
        if word == "--":
            if not is_global and position + 1 < len(words):
                found.setdefault("", words[position + 1])
            return found, position + 1
        if len(word) < 2 or word[0] != "-":
            if is_global:
                break
            found.setdefault("", word)
        else:
            name, equals, value = word.lstrip("-").partition("=")
            name = _full_name(name, with_value)
            letters = "" if is_global or word[1] == "-" or name in with_value else word[1:]
            if letters.lstrip("d")[:1] in ("b", "f"):  # crun accepts -db DIR and -bDIR
                letters = letters.lstrip("d")
                name = _full_name(letters[0], with_value)
                equals = value = letters[1:]
            if not equals and name in with_value and position + 1 < len(words):
                position += 1
                value = words[position]
            if name:  # "--=x" is not an option, and "" is the container's id
                found["config" if name == "f" else name] = value
        position += 1
    return found, position


def _full_name(name: str, with_value: tuple[str, ...]) -> str:
    """The option that `name` is or abbreviates (crun accepts --bundl); else `name` itself."""
    if not name or name in with_value:
        return name
    return next((full for full in with_value if full.startswith(name)), name)


def load_config(path: str) -> Any:
    """Parse the bundle's config.json. Raises VcudaError: unreadable, or not JSON."""
    try:
        content = files.read(path, _MOST_BYTES, follow=True)
        if len(content) <= _SMALL_BYTES:
            return jsontree.loads(content.decode())
        from ..guest.memory import BoundedMemory  # only for a large config.json

        with BoundedMemory(path):
            return jsontree.loads(content.decode())
    except OSError as error:
        raise VcudaError(
            f"cannot be read: {error.strerror}", path, "name the bundle with --bundle"
        ) from error
    except ValueError as error:
        raise VcudaError(
            f"is not JSON: {error}", path, "correct it, or let the engine write it"
        ) from error


def replace_config(path: str, spec: Any) -> None:
    """Replace config.json atomically: write a new file with the old one's mode, fsync, rename.

    A symlink is replaced, not its target, which other bundles may share. Two creations from one
    bundle wait for each other. Raises VcudaError: no space, or nested too deeply to be written.
    """
    try:
        content = jsontree.dumps(spec).encode()
    except ValueError as error:
        raise VcudaError(str(error), "config.json", "correct it as the OCI spec says") from error
    try:
        mode = os.stat(path).st_mode & 0o777
        beside = path + ".new"
        fd = own_lock.acquire_beside(beside, TURN_SECONDS)
        try:
            files.fill(fd, content, mode, sync=True)
            os.rename(beside, path)
        except BaseException:
            files.remove(beside)
            raise
        finally:
            os.close(fd)
    except OSError as error:
        raise VcudaError(
            f"cannot be replaced: {error.strerror}", path, "free space on its file system"
        ) from error
