"""Read and check ``config.toml``.

The grammar is a subset of TOML: ``key = "text"`` and ``key = ["text", …]``, each on one line. Any
other line is an error. ``tomllib`` is not used: it takes 11 ms to import and needs Python 3.11. A
test compares this parser with ``tomllib`` on random files.
"""

from __future__ import annotations

import os

from ..model import capabilities, names
from ..model.durations import NEVER, parse_seconds
from ..model.errors import VcudaError
from ..model.policies import isolation_of
from ..model.sizes import LEAST_SHARE_BYTES, parse_bytes
from . import files

ENV_NEVER, ENV_UNPRIVILEGED, ENV_ALWAYS = "never", "unprivileged", "always"
BINPACK, SPREAD, TOPOLOGY = "binpack", "spread", "topology"
PLACEMENTS = (BINPACK, SPREAD, TOPOLOGY)
NO, YES = "no", "yes"
REPORT, STOP = "report", "stop"
AUTO, OFF, PREFERRED, REQUIRED = "auto", "off", "preferred", "required"
NFD, API = "nfd", "api"
PLUGIN, DRA = "plugin", "dra"
MANAGED, ROTATE = "managed", "rotate"
MEASURED = "measured"
EXTRA_DEVICES = ("gds", "gdrcopy", "mofed", "nvswitch", "imex", "mps")

_CHOICES = {
    "accept-request-from-env": (ENV_NEVER, ENV_UNPRIVILEGED, ENV_ALWAYS),
    "placement": PLACEMENTS,
    "meter-copies": (NO, YES),
    "bypass": (REPORT, STOP),
    "driver-limits": (AUTO, OFF),
    "decisions": (OFF, PREFERRED, REQUIRED),
    "kubernetes": (AUTO, NO),
    "labels": (AUTO, NFD, API, NO),
    "gpu-offer": (PLUGIN, DRA),
    "mps-devices": (NO, YES),
    "oversubscribe": (MANAGED, ROTATE),
    "exemplars": (NO, YES),
    "driver-capabilities": capabilities.ALL,
    "extra-devices": EXTRA_DEVICES,
}
_DEFAULTS: dict[str, str | list[str]] = {
    "runtime": "runc",
    "state-dir": "/run/vcuda",
    "driver-root": AUTO,
    "accept-request-from-env": ENV_UNPRIVILEGED,
    "placement": BINPACK,
    "memory-overcommit": "1",
    "oversubscribe": MANAGED,
    "rotation-quantum": MEASURED,
    "context-memory": "0",
    "meter-copies": NO,
    "idle-suspend": NEVER,
    "isolation": AUTO,
    "suspend-memory": "0",
    "decisions": PREFERRED,
    "kubernetes": AUTO,
    "labels": AUTO,
    "gpu-offer": PLUGIN,
    "mps-devices": NO,
    "mps-partitions": "",
    "extra-mounts": [],
    "driver-capabilities": list(capabilities.ALL),
    "extra-devices": [],
    "core-resource": "tencent.com/vcuda-core",
    "memory-resource": "tencent.com/vcuda-memory",
    "gpu-resource": "",
    "gpu-split": "1",
    "bypass": REPORT,
    "driver-limits": AUTO,
    "listen": "127.0.0.1:5678",
    "exemplars": NO,
    # Faults of the program, and faults that need a reset of the GPU. Source: NVIDIA, "Xid Errors".
    "ignored-xids": ["13", "31", "43", "45", "68", "69"],
    "lasting-xids": ["48", "62", "64", "79", "95", "119", "120", "140"],
}
_RESOURCES = ("core-resource", "memory-resource", "gpu-resource")
_SIZES = ("context-memory", "suspend-memory")
_XIDS = ("ignored-xids", "lasting-xids")
_MOST_BYTES = 1 << 60  # above any GPU's memory; sums over all GPUs still fit 64 bits
_RESOURCE_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Config:
    """The checked settings. Paths are absolute; `runtime` is a name or an absolute path.

    memory_overcommit: all shares of a GPU may hold this multiple of its memory, at least 1.
    rotates: containers take turns where they hold more than the GPU; else the driver moves memory.
    rotation_quantum: seconds; 0: by the measured copies. context_memory: bytes that each context
    charges to its container's share. *_resource: name of a Kubernetes resource; "": the node agent
    does not offer it. gpu_split: units of gpu_resource a GPU. idle_suspend: seconds; 0: never.
    isolation: one of policies.ISOLATIONS.
    suspend_memory: bytes of the host's memory for suspended containers; 0: no bound. listen:
    address of the agent's HTTP server, unchecked; "": none. *_xids: numbers.
    by_dra: the node agent offers GPUs by DRA, not by its device plugin. mps_devices: and each also
    as a device for containers under MPS. mps_partitions: percents of the multiprocessors of a GPU
    under MPS. stop_bypass: stop a container that bypasses the shim. driver_limits: use the driver's
    own limits too, where it has them.
    """

    def __init__(self, path: str, values: dict[str, str | list[str]]) -> None:
        self.path = path
        self.runtime = str(values["runtime"])
        self.state_dir = str(values["state-dir"])
        self._driver_root = str(values["driver-root"])
        self.accept_request_from_env = str(values["accept-request-from-env"])
        self.placement = str(values["placement"])
        self.memory_overcommit = float(str(values["memory-overcommit"]))
        self.rotates = values["oversubscribe"] == ROTATE and self.memory_overcommit > 1
        self.rotation_quantum = _quantum(str(values["rotation-quantum"]), path)
        self.context_memory = parse_bytes(str(values["context-memory"])) or 0
        self.meter_copies = values["meter-copies"] == YES
        self.idle_suspend = parse_seconds(str(values["idle-suspend"]), "idle-suspend", path)
        self.isolation = str(values["isolation"])
        self.suspend_memory = parse_bytes(str(values["suspend-memory"])) or 0
        self.decisions = str(values["decisions"])
        self.kubernetes = str(values["kubernetes"])
        self.labels = str(values["labels"])
        self.by_dra = values["gpu-offer"] == DRA
        self.mps_devices = self.by_dra and values["mps-devices"] == YES
        self.mps_partitions = _percents(str(values["mps-partitions"]), path)
        self.extra_mounts = [mount.split(":") for mount in values["extra-mounts"]]
        self.driver_capabilities = list(values["driver-capabilities"])
        self.extra_devices = list(values["extra-devices"])
        self.core_resource = str(values["core-resource"])
        self.memory_resource = str(values["memory-resource"])
        self.gpu_resource = str(values["gpu-resource"])
        self.gpu_split = int(str(values["gpu-split"]))
        self.stop_bypass = values["bypass"] == STOP
        self.driver_limits = values["driver-limits"] == AUTO
        self.listen = str(values["listen"])
        self.exemplars = values["exemplars"] == YES
        self.ignored_xids = [int(xid) for xid in values["ignored-xids"]]
        self.lasting_xids = [int(xid) for xid in values["lasting-xids"]]

    @property
    def driver_root(self) -> str:
        """The folder that the driver's files lie below. `auto` is resolved on each call, because a
        software GPU may be created while a server runs."""
        return _found_driver_root() if self._driver_root == AUTO else self._driver_root


def _found_driver_root() -> str:
    """ "/", or the software GPU's folder if there is one and NVIDIA's driver is not loaded."""
    is_loaded = os.path.exists(f"/proc/{names.KERNEL_DRIVER}")
    if not is_loaded and os.path.exists(names.SOFTWARE_GPU_STATE):
        return os.path.dirname(names.SOFTWARE_GPU_STATE)
    return "/"


# The last settings read, by path and stamp: the claim socket loads them for each request.
_latest: dict[tuple[str, tuple[int, ...]], Config] = {}


def load(path: str) -> Config:
    """Read the settings; a missing file or key means the default.

    Later calls return the same object while the file is unchanged: do not modify it.

    Raises VcudaError: an unknown key, a wrong value, or a line that is not TOML.
    """
    key = (path, files.stamp(path))  # taken first: the content may be newer than it, never older
    known = _latest.get(key)
    if known:
        return known
    try:
        text = files.read_settings(path).decode()
    except FileNotFoundError:
        link = _dangling_folder(path)
        if link:
            what = "a link to a folder that is missing"
            raise VcudaError(what, link, "link it to one that is there") from None
        text = ""
    except NotADirectoryError as error:
        raise VcudaError("a part of its path is not a folder", path, "correct the path") from error
    except BlockingIOError as error:
        raise VcudaError("a program holds a lease on it", path, "end that program") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
        raise VcudaError(
            f"cannot be read: {reason}", path, "make it a readable UTF-8 file"
        ) from error
    settings = parse(text, path)
    _latest.clear()
    if key[1]:
        _latest[key] = settings
    return settings


def _dangling_folder(path: str) -> str:
    """The parent folder of a missing file, if it is a link to a missing folder; else ""."""
    folder = os.path.dirname(path)
    while folder.strip("/") and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return "" if not folder or os.path.exists(folder) else folder


def load_named(path: str) -> Config:
    """Load the file that a command line names; only the default file may be missing."""
    if path != names.DEFAULT_CONFIG:
        try:
            os.lstat(path)
        except FileNotFoundError as error:
            hint = "name an existing file, or leave --config out"
            raise VcudaError("no such file", path, hint) from error
        except OSError:
            pass  # load reports the reason
    return load(path)


def parse(text: str, path: str) -> Config:
    """Parse the text of a settings file; `path` is for error lines. Raises as `load` does."""
    values = dict(_DEFAULTS)
    seen: set[str] = set()
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = line.strip(" \t")
        if not line or (line[0] == "#" and line.isprintable()):
            continue  # the fast way for most lines of the packages' file
        where = f"{path}:{number}"
        if line[0] == "#":
            _expect_end(line, where)
            continue
        key, equals, rest = line.partition("=")
        key = key.rstrip(" \t")
        if not equals:
            raise VcudaError(f"'{line}' is not a setting", where, 'write key = "value"')
        if key not in _DEFAULTS:
            raise VcudaError(f"unknown key '{key}'", where, _nearest(key))
        if key in seen:
            raise VcudaError(f"'{key}' is set twice", where, "remove one of the lines")
        seen.add(key)
        values[key] = _value(key, rest.lstrip(" \t"), where)
    return Config(path, values)


def _value(key: str, text: str, where: str) -> str | list[str]:
    if isinstance(_DEFAULTS[key], list):
        value, rest = _array(key, text, where)
        for item in value:
            _check_choice(key, item, where)
            parts = item.split(":")
            is_mount = len(parts) == 2 and all(part.startswith("/") for part in parts)
            if key == "extra-mounts" and not is_mount:
                raise VcudaError(f"invalid mount '{item}'", where, 'write "/source:/destination"')
            if key in _XIDS and not (item.isascii() and item.isdigit() and len(item) <= 4):
                example = '", "'.join(_DEFAULTS[key][:2])
                raise VcudaError(f"invalid Xid '{item}'", where, f'write numbers: ["{example}"]')
        _expect_end(rest, where)
        return value
    item, rest = _string(key, text, where)
    _expect_end(rest, where)
    _check_choice(key, item, where)
    is_path = key == "state-dir" or (key == "driver-root" and item != AUTO)
    if is_path and not item.startswith("/"):
        hint = "write a path that begins with /"
        raise VcudaError(f"{key} '{item}' is not absolute", where, hint)
    if key == "runtime" and (not item or ("/" in item and not item.startswith("/"))):
        hint = "write a name such as runc, or a path that begins with /"
        raise VcudaError(f"runtime '{item}' is neither a name nor absolute", where, hint)
    if key == "memory-overcommit" and not _is_factor(item):
        hint = "write how often memory may be promised, from 1 to 100, such as 1.5"
        raise VcudaError(f"{key} cannot be '{item}'", where, hint)
    if key in _RESOURCES and item and not _is_resource(item):
        hint = f'write a domain and a name such as {_DEFAULTS["core-resource"]}, or ""'
        raise VcudaError(f"{key} cannot be '{item}'", where, hint)
    if key == "gpu-split" and not (item.isascii() and item.isdigit() and 1 <= int(item) <= 100):
        hint = "write how many containers may share a GPU, from 1 to 100"
        raise VcudaError(f"{key} cannot be '{item}'", where, hint)
    if key == "idle-suspend":
        parse_seconds(item, key, where)
    if key == "isolation":
        isolation_of(item, where)
    if key == "mps-partitions":
        _percents(item, where)
    if key == "rotation-quantum":
        _quantum(item, where)
    size = parse_bytes(item) if key in _SIZES else 0
    if size is None or size >= _MOST_BYTES:
        raise VcudaError(f"{key} cannot be '{item}'", where, "write a size such as 300MiB, or 0")
    if 0 < size < LEAST_SHARE_BYTES and item.isdigit():
        raise VcudaError(f"{key} '{item}' is {size} bytes", where, f"did you mean {item}MiB?")
    return item


def _quantum(item: str, where: str) -> int:
    """Seconds; 0: measured. Raises VcudaError."""
    if item == MEASURED:
        return 0
    if item == NEVER:
        hint = f"write {MEASURED}, or a time such as 30s"
        raise VcudaError(f"rotation-quantum cannot be '{item}'", where, hint)
    return parse_seconds(item, "rotation-quantum", where)


def _percents(item: str, where: str) -> list[int]:
    """Of "50,25,25". Raises VcudaError."""
    parts = [part.strip() for part in item.split(",")] if item else []
    are_numbers = all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts)
    found = [int(part) for part in parts] if are_numbers else []
    if not are_numbers or 0 in found:
        hint = 'write percents of the multiprocessors, such as "50,25,25", or ""'
        raise VcudaError(f"mps-partitions cannot be '{item}'", where, hint)
    if sum(found) > 100:
        what = f"the percents of mps-partitions, '{item}', add up to {sum(found)}"
        raise VcudaError(what, where, "write such that add up to at most 100")
    return found


def _is_factor(text: str) -> bool:
    """Whether `text` is a decimal from 1 to 100. float() alone would accept "1e2" and "nan"."""
    whole, point, rest = text.partition(".")
    digits = [whole, rest] if point else [whole]
    return all(d.isascii() and d.isdigit() for d in digits) and 1 <= float(text) <= 100


def _is_resource(text: str) -> bool:
    """Whether `text` is a resource's name: a domain other than kubernetes.io, a slash, a name.

    Source: Kubernetes, "Extended resources".
    """
    domain, slash, name = text.partition("/")
    parts = (domain, name)
    # Kubernetes allows 63 characters.
    whole = all(part.isascii() and part[:1].isalnum() and part[-1:].isalnum() for part in parts)
    plain = all(not set(part) - _RESOURCE_LETTERS for part in parts)
    return bool(slash) and whole and plain and len(name) <= 63 and "kubernetes.io" not in domain


def _check_choice(key: str, item: str, where: str) -> None:
    if key in _CHOICES and item not in _CHOICES[key]:
        choices = ", ".join(_CHOICES[key])
        raise VcudaError(f"{key} cannot be '{item}'", where, f"choose one of {choices}")


def _array(key: str, text: str, where: str) -> tuple[list[str], str]:
    if not text.startswith("["):
        raise VcudaError(f"{key} takes a list", where, f'write {key} = ["…"] on one line')
    items: list[str] = []
    rest = text[1:].lstrip(" \t")
    while not rest.startswith("]"):
        item, rest = _string(key, rest, where)
        items.append(item)
        rest = rest.lstrip(" \t")
        if rest.startswith(","):
            rest = rest[1:].lstrip(" \t")
        elif not rest.startswith("]"):
            raise VcudaError(f"the list of {key} does not end", where, "close it with ]")
    return items, rest[1:]


def _string(key: str, text: str, where: str) -> tuple[str, str]:
    """The TOML string that `text` begins with, and the rest of `text`."""
    quote = text[:1]
    if quote not in ("'", '"') or text.startswith(quote * 3):
        raise VcudaError(f"{key} takes a string", where, f'write {key} = "…" on one line')
    plain, closed, rest = text[1:].partition(quote)
    if closed and plain.isprintable() and (quote == "'" or "\\" not in plain):
        return plain, rest  # the fast way for nearly all strings
    characters: list[str] = []
    index = 1
    while index < len(text) and text[index] != quote:
        character = text[index]
        if quote == '"' and character == "\\":
            index += 1
            escape = text[index : index + 1]
            if escape not in _ESCAPES:
                raise VcudaError(f"unknown escape '\\{escape}'", where, "use '…' for raw text")
            character = _ESCAPES[escape]
        elif _is_control(character):
            raise VcudaError("a control character in a string", where, "remove it")
        characters.append(character)
        index += 1
    if index >= len(text):
        raise VcudaError(f"the string of {key} does not end", where, f"close it with {quote}")
    return "".join(characters), text[index + 1 :]


def _expect_end(rest: str, where: str) -> None:
    rest = rest.strip(" \t")
    if rest and not rest.startswith("#"):
        raise VcudaError(f"'{rest}' after the value", where, "end the line there")
    if any(_is_control(character) for character in rest):
        raise VcudaError("a control character in a comment", where, "remove it")


def _is_control(character: str) -> bool:
    return character != "\t" and (ord(character) < 32 or ord(character) == 127)


def _nearest(key: str) -> str:
    import difflib  # late: only an error needs it

    near = difflib.get_close_matches(key, _DEFAULTS, 1, 0.0)[0]
    return f"did you mean '{near}'?"
