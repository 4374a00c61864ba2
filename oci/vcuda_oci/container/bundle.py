"""The command line and the bundle of an OCI runtime, read as runc and crun read them."""

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
# oci/launcher/arguments.c has the same lists; a test compares them.
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
# As a tree it takes up to 25 times as much: more than this is read within bounded memory.
_SMALL_BYTES = 1 << 20


class Command:
    """One call of the runtime: its words, and what matters of them.

    verb: "" where there is none. container_id: "" where none is given. root: "" where the runtime
    chooses it. bundle and config_path: as the runtime would open them from here.
    """

    def __init__(self, words: list[str]) -> None:
        options, position = _options(words, 0, GLOBAL_VALUES)
        self.words = words
        self.root = options.get("root", "")
        self.log = options.get("log", "")
        self.log_format = options.get("log-format", "text")
        self.verb = words[position] if position < len(words) else ""
        self.container_id, self.bundle, self.config_path = "", "", ""
        # `run --keep`: the caller deletes the container itself, maybe after it unmounted the root.
        self.is_kept = False
        if self.verb in CREATING:
            options, _ = _options(words, position + 1, CREATE_VALUES)
            self.container_id = options.get("", "")
            self.is_kept = self.verb == "run" and "keep" in options
            self.bundle = options.get("bundle") or "."
            self.config_path = options.get("config", "config.json")
            # crun reads any other file from where it was called, not from the bundle.
            if self.config_path == "config.json":
                self.config_path = os.path.join(self.bundle, "config.json")

    @property
    def creates(self) -> bool:
        return self.verb in CREATING

    def state_query(self, runtime: str, folder: str = "") -> list[str]:
        """The command line that asks `runtime` for a container's state, up to the verb.

        folder: where the command was called, "" is here.

        Of the global options only the root says which containers there are. The others belong to
        this one call: with its --log, a query would write into a log that the engine reads.
        """
        if not self.root:
            return [runtime]
        return [runtime, "--root", os.path.join(folder or os.getcwd(), self.root)]


def _options(
    words: list[str], position: int, with_value: tuple[str, ...]
) -> tuple[dict[str, str], int]:
    """Options from `position` on, and where they end; of one given twice the last counts.

    The global ones end at the first plain word, the verb. A verb's own go on to the end, and the
    first plain word among them, the container's id, stands under the name "".
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
            if letters.lstrip("d")[:1] in ("b", "f"):  # as crun takes -db DIR and -bDIR
                letters = letters.lstrip("d")
                name = _full_name(letters[0], with_value)
                equals = value = letters[1:]
            if not equals and name in with_value and position + 1 < len(words):
                position += 1
                value = words[position]
            if name:  # "--=x" is no option, and "" is where the container's id stands
                found["config" if name == "f" else name] = value
        position += 1
    return found, position


def _full_name(name: str, with_value: tuple[str, ...]) -> str:
    """The option that `name` is or abbreviates, as crun takes --bundl; else `name` itself."""
    if not name or name in with_value:
        return name
    return next((full for full in with_value if full.startswith(name)), name)


def load_config(path: str) -> Any:
    """The bundle's config.json as a tree. Raises VcudaError: unreadable, or no JSON."""
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
            f"is not JSON: {error}", path, "mend it, or let the engine write it"
        ) from error


def replace_config(path: str, spec: Any) -> None:
    """Write beside, fsync, rename, under the old file's mode.

    A symlink is replaced, not what it points to: other bundles may share that file. Two that create
    from one bundle at once take turns. Raises VcudaError: no space, or nested so deeply that it
    could be read but not written.
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
