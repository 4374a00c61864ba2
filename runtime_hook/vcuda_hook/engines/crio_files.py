"""CRI-O's configuration: crio.conf, the files of crio.conf.d, and the running CRI-O's answer.

All files of the folder are read in the order of their names; a handler in a later file replaces one
of the same name completely. Source: CRI-O pkg/config, UpdateFromPath; crio.conf.d(5); seen with
1.36.3.
"""

from __future__ import annotations

import os
import subprocess
from typing import Any

from . import engine_file
from .text_edit import merge, parse, table_at

_MAIN = "/etc/crio/crio.conf"
RUNTIMES = ("crio", "runtime", "runtimes")
_SECONDS = 60


def files(path: str) -> list[tuple[str, dict[str, Any]]]:
    """crio.conf and each file beside `path`, a file of crio.conf.d, in the order of reading."""
    found = [main_file(path)]
    for folder, folders, names in os.walk(os.path.dirname(path)):
        folders.sort()
        found += (os.path.join(folder, name) for name in names)
    first, *others = found
    texts = [(each, engine_file.read(each)) for each in (first, *sorted(others))]
    return [(each, parse("toml", text, each)) for each, text in texts if text is not None]


def main_file(path: str) -> str:
    return os.path.dirname(os.path.dirname(path)) + "/" + os.path.basename(_MAIN)


def read(path: str) -> dict[str, Any]:
    """The configuration by the files.

    Values that no file sets come from the running CRI-O, which has looked up its programs.
    """
    merged: dict[str, Any] = {}
    for _, tree in files(path):
        merge(merged, tree, RUNTIMES)
    running = _running() if main_file(path) == _MAIN else {}
    handlers = table_at(merged, RUNTIMES)
    for name, handler in handlers.items():
        known = table_at(running, (*RUNTIMES, name))
        if known and isinstance(handler, dict):
            handlers[name] = {**known, **handler}
    merge(running, merged, RUNTIMES)
    return running


def asked(path: str, *words: str) -> subprocess.CompletedProcess[bytes] | None:
    """The answer of `crio` with the files at `path` as its configuration; None: not installed."""
    folder = ["--config-dir", os.path.dirname(path)]
    main = main_file(path)
    named = ["--config", main if os.path.exists(main) else ""]
    return _crio(*named, *folder, *words)


def _running() -> dict[str, Any]:
    """The running CRI-O's configuration; {}: none runs."""
    answer = _crio("status", "config")
    try:
        if answer is None or answer.returncode != 0:
            return {}
        return parse("toml", answer.stdout.decode(), "crio status config")
    except ValueError:
        return {}


def _crio(*words: str) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(
            ["crio", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
