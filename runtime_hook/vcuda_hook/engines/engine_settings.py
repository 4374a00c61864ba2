"""Read the low-level runtimes from the engines' own configuration files.

Source: dockerd's daemon.json; containerd docs/cri/config.md; crio.conf(5), crio.conf.d(5);
containers.conf(5).
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .containerd_files import PLUGINS
from .text_edit import table_at
from .texts.toml_document import Document

DOCKER, CONTAINERD, CRIO, PODMAN = "docker", "containerd", "crio", "podman"
_PROGRAMS = {DOCKER: "dockerd", CONTAINERD: "containerd", CRIO: "crio", PODMAN: "podman"}
# Later files override earlier ones.
_FILES = {
    DOCKER: ("/etc/docker/daemon.json",),
    CONTAINERD: ("/etc/containerd/config.toml",),
    CRIO: ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*"),
    PODMAN: (
        "/usr/share/containers/containers.conf",
        "/etc/containers/containers.conf",
        "/etc/containers/containers.conf.d/*.conf",
    ),
}
# For Podman and CRI-O. Source: oci-hooks(5).
_HOOKS = ("/usr/share/containers/oci/hooks.d/*.json", "/etc/containers/oci/hooks.d/*.json")
_HOOK = "vcuda-container-hook"
_NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")


@dataclass
class Handler:
    """A low-level runtime by the engine's name for it. path: "": the engine chooses."""

    name: str
    path: str
    file: str
    # of containerd only
    container_annotations: list[str] = field(default_factory=list)
    pod_annotations: list[str] = field(default_factory=list)
    systemd_cgroup: bool = False


@dataclass
class Engine:
    """default: the handler of containers that name none; "": the engine's own. default_file: the
    file that sets it.

    broken: (file, error) of each that cannot be read or parsed. hooks: files in hooks.d that call
    vcuda's hook. cri_file: the last one of containerd with the CRI plugin's table.
    """

    name: str
    files: list[str] = field(default_factory=list)
    handlers: dict[str, Handler] = field(default_factory=dict)
    default: str = ""
    default_file: str = ""
    broken: list[tuple[str, Exception]] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    cri_file: str = ""


def read(etc: str = "") -> list[Engine]:
    """The engines that have a program or a file on this host. etc: prefix of each file's path."""
    engines = []
    for name, patterns in _FILES.items():
        engine = Engine(name)
        for pattern in patterns:
            for path in sorted(glob.glob(etc + pattern)):
                _read_file(engine, path)
        if name in (CRIO, PODMAN):
            engine.hooks = _hooks((_HOOK,), etc)
        if engine.files or shutil.which(_PROGRAMS[name]):
            engines.append(engine)
    return engines


def nvidia_hooks(etc: str = "") -> list[str]:
    """The files by which Podman and CRI-O call NVIDIA's hook."""
    return _hooks(_NVIDIA_HOOKS, etc)


def _hooks(programs: Sequence[str], etc: str) -> list[str]:
    """The files in hooks.d that name one of the programs; unreadable files are skipped."""
    found = []
    for path in sorted(path for pattern in _HOOKS for path in glob.glob(etc + pattern)):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError):
            continue
        if any(program in text for program in programs):
            found.append(path)
    return found


def _read_file(engine: Engine, path: str) -> None:
    if path in engine.files or not os.path.isfile(path):
        return
    engine.files.append(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        tree = json.loads(text or "{}") if engine.name == DOCKER else Document(text).tree
    except (OSError, ValueError, RecursionError) as error:
        engine.broken.append((path, error))
        return
    _ADD[engine.name](engine, tree, path)


def _add_docker(engine: Engine, tree: Any, path: str) -> None:
    for name, runtime in table_at(tree, ("runtimes",)).items():
        engine.handlers[name] = Handler(name, _text(runtime, "path"), path)
    _set_default(engine, _text(tree, "default-runtime"), path)


def _add_containerd(engine: Engine, tree: Any, path: str) -> None:
    for plugin in reversed(PLUGINS.values()):
        cri = table_at(tree, ("plugins", plugin))
        if cri:
            engine.cri_file = path
        containerd = table_at(cri, ("containerd",))
        for name, table in table_at(containerd, ("runtimes",)).items():
            # An imported file adds to the handler, because containerd 2 merges them.
            handler = engine.handlers.setdefault(name, Handler(name, "", path))
            options = table_at(table, ("options",))
            if _text(options, "BinaryName"):
                handler.path, handler.file = _text(options, "BinaryName"), path
            if isinstance(options.get("SystemdCgroup"), bool):
                handler.systemd_cgroup = options["SystemdCgroup"]
            for key in ("container_annotations", "pod_annotations"):
                if isinstance(table, dict) and key in table:
                    setattr(handler, key, _texts(table, key))
        _set_default(engine, _text(containerd, "default_runtime_name"), path)
    imports = tree.get("imports")
    for pattern in imports if isinstance(imports, list) else []:
        for imported in sorted(glob.glob(os.path.join(os.path.dirname(path), str(pattern)))):
            _read_file(engine, imported)


def _add_crio(engine: Engine, tree: Any, path: str) -> None:
    runtime = table_at(tree, ("crio", "runtime"))
    for name, table in table_at(runtime, ("runtimes",)).items():
        engine.handlers[name] = Handler(name, _text(table, "runtime_path"), path)
    _set_default(engine, _text(runtime, "default_runtime"), path)


def _add_podman(engine: Engine, tree: Any, path: str) -> None:
    runtimes = table_at(tree, ("engine", "runtimes"))
    for name in runtimes:
        # The first existing one is used.
        places = _texts(runtimes, name)
        there = [place for place in places if os.path.exists(place)] or places
        engine.handlers[name] = Handler(name, there[0] if there else "", path)
    _set_default(engine, _text(table_at(tree, ("engine",)), "runtime"), path)


_ADD = {
    DOCKER: _add_docker,
    CONTAINERD: _add_containerd,
    CRIO: _add_crio,
    PODMAN: _add_podman,
}


def _set_default(engine: Engine, name: str, path: str) -> None:
    if name:
        engine.default, engine.default_file = name, path


def _text(tree: Any, name: str) -> str:
    value = tree.get(name) if isinstance(tree, dict) else None
    return value if isinstance(value, str) else ""


def _texts(tree: Any, name: str) -> list[str]:
    value = tree.get(name) if isinstance(tree, dict) else None
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
