"""containerd's configuration: config.toml together with the files that it imports.

containerd 2 merges imported files key by key, each after the file that imports it. containerd 1
replaces a plugin's whole section by that of an imported file. `containerd config dump` prints the
result. Source: containerd cmd/containerd/server/config, LoadConfig; seen with 1.6.20 and 2.3.4.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import subprocess
from typing import Any

from . import engine_file
from .text_edit import at, merge, parse, table_at

FILE = "/etc/containerd/config.toml"
# The CRI plugin's name by the file's version; the last also for later versions.
PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
# The CRI plugin needs all of these to start.
_NEEDED = {*PLUGINS.values(), "io.containerd.cri.v1.images"}
_DUMP_SECONDS = 60


class View:
    """cri: the CRI plugin's section, merged."""

    def __init__(self, cri: dict[str, Any], disabled_plugins: list[Any]) -> None:
        self.cri = cri
        self.cri_is_disabled = bool(_NEEDED.intersection(map(str, disabled_plugins)))


def view(path: str, tree: dict[str, Any]) -> View:
    """The merged configuration if `path`, a main or an imported file, had the content `tree`.

    Merged as containerd 2 does, without defaults.
    """
    return _merged([each for _, each in files(path, tree)])


def _merged(trees: list[dict[str, Any]]) -> View:
    cri: dict[str, Any] = {}
    disabled: list[Any] = []
    for tree in trees:
        for plugin in PLUGINS.values():
            merge(cri, section(tree, plugin))
        names = tree.get("disabled_plugins")
        disabled += names if isinstance(names, list) else []
    return View(cri, disabled)


def dumped(path: str) -> View | None:
    """The configuration as containerd prints it, with `path` as the main file or an imported one.

    None: containerd is not in PATH, its version does not know such files, or it cannot read them.
    """
    main = main_file(path)
    tree = _printed("--config", main, "config", "dump")
    if tree is None:
        return None
    newer = plugin_of(read(main)) == PLUGINS[3]
    if newer and section(tree, PLUGINS[2]).get("containerd"):
        return None  # containerd 1 ignores a newer file's plugin
    return _merged([tree])


def defaults() -> View | None:
    """The configuration without a file, of which containerd 1 prints no dump. None: not in PATH."""
    tree = _printed("config", "default")
    return None if tree is None else _merged([tree])


def _printed(*words: str) -> dict[str, Any] | None:
    try:
        done = subprocess.run(
            ["containerd", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",  # like its service: containerd 1 resolves relative patterns from there
            timeout=_DUMP_SECONDS,
            check=True,
        )
        return parse("toml", done.stdout.decode(), f"containerd {' '.join(words)}")
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def files(path: str, tree: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each file in effect, with its content, in the order in which containerd merges them.

    tree: the content of `path`, which may not exist yet.
    """
    path = os.path.realpath(path)
    found: dict[str, dict[str, Any]] = {}
    pending = [os.path.realpath(main_file(path))]
    while pending:
        each = pending.pop(0)
        if each not in found:
            found[each] = tree if each == path else read(each)
            for pattern in patterns(found[each], each):
                matches = {*map(os.path.realpath, glob.glob(pattern))}
                matches.update([path] if fnmatch.fnmatchcase(path, pattern) else [])
                pending += sorted(matches)
    return list(found.items())


def later(path: str, tree: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Those of `files` that are merged after `path`."""
    found = files(path, tree)
    return found[[each for each, _ in found].index(os.path.realpath(path)) + 1 :]


def main_file(path: str) -> str:
    """The main file that imports `path`, or `path` itself."""
    for candidate in (f"{os.path.dirname(os.path.dirname(path))}/config.toml", FILE):
        if os.path.isfile(candidate) and candidate != path:
            imported = patterns(read(candidate), candidate)
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in imported):
                return candidate
    return path


def patterns(tree: dict[str, Any], path: str) -> list[str]:
    """The files that `tree`, the content of `path`, imports, as absolute patterns."""
    names = tree.get("imports")
    folder = os.path.dirname(path)
    return [os.path.join(folder, str(each)) for each in names] if isinstance(names, list) else []


def plugin_of(tree: dict[str, Any]) -> str:
    """The CRI plugin's name in this file. An imported file may lack a version."""
    present = at(tree, ("plugins",))
    version = tree.get("version", 0)
    if "version" not in tree and isinstance(present, dict):
        for plugin in reversed(PLUGINS.values()):
            if plugin in present:
                return plugin
    number = version if isinstance(version, int) else 1
    return PLUGINS[min(max(number, 1), 3)]


def section(tree: dict[str, Any], plugin: str) -> dict[str, Any]:
    return table_at(tree, ("plugins", plugin))


def read(path: str) -> dict[str, Any]:
    return parse("toml", engine_file.read(path) or "", path)
