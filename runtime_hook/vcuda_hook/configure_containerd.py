"""containerd's config.toml: a runtime handler of the CRI plugin, for Kubernetes and crictl.

The file itself is edited, and no drop-in added: containerd before 2.0 replaces a plugin's whole
section by that of an imported file. Where the file names no handler, the default one is written
too: containerd 1.x drops its built-in runc as soon as one is named. Seen with 1.6.20. Source:
containerd docs/cri/config.md; pull request 9982 for the merging of 2.0.
"""

from __future__ import annotations

import fnmatch
import glob
import os

from vcuda_oci import names
from vcuda_oci.errors import VcudaError

from . import engine_file
from .configure_text import MISSING, at, parse
from .configure_wish import NAME, Wish
from .toml_values import written_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .configure_text import Path
    from .configure_wish import Options

FILE = "/etc/containerd/config.toml"
FORM = "toml"
NEW = "version = 2\n"
AFTER = AFTER_REMOVAL = "systemctl restart containerd"

# The CRI plugin's name by the file's version; from 3 on it stays.
_PLUGINS = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_RUNC = "io.containerd.runc.v2"
_ANNOTATIONS = names.ANNOTATION_PREFIX + "*"
# Of the handler that ours is made like. What names another program or lets annotations in is not
# carried over.
_NOT_CARRIED = ("container_annotations", "pod_annotations", "runtime_path", "runtime_engine")
_NOT_CARRIED_OPTIONS = ("BinaryName",)


def wish(tree: dict[str, Any], options: Options) -> Wish:
    """Raises VcudaError: the handler would not count, or a pod's author could ask through it."""
    path = options.path
    plugin = _plugin(tree)
    disabled = tree.get("disabled_plugins", [])
    if isinstance(disabled, list) and {"cri", plugin} & set(map(str, disabled)):
        raise VcudaError("disables the CRI plugin", path, "take it out of disabled_plugins")
    for other in _imported(tree, path):
        # Merged key by key only from 2.0 on, which writes version 3.
        text = engine_file.read(other) if plugin != _PLUGINS[3] else None
        if text is not None and at(parse(FORM, text, other), ("plugins", plugin)) is not MISSING:
            what = f"imports {other}, whose section for {plugin} replaces this file's"
            raise VcudaError(what, path, f"run this with --config {other}")

    containerd: Path = ("plugins", plugin, "containerd")
    handlers = at(tree, (*containerd, "runtimes"))
    handlers = handlers if isinstance(handlers, dict) else {}
    _refuse_pod_annotations(handlers, options)
    default = at(tree, (*containerd, "default_runtime_name"))
    default = default if isinstance(default, str) and default else "runc"
    model = handlers.get(default if default != NAME else "runc", {})
    wanted = Wish([])
    if not handlers:
        wanted.settings.append(((*containerd, "runtimes", default), {"runtime_type": _RUNC}))
    elif model.get("runtime_type", _RUNC) != _RUNC:
        model = handlers.get("runc", {})
    wanted.settings.append(((*containerd, "runtimes", NAME), _handler(model, options.program)))
    if options.default:
        wanted.settings.append(((*containerd, "default_runtime_name"), NAME))
    binary = at(model, ("options", "BinaryName"))
    if isinstance(binary, str) and binary not in ("", "runc", options.program):
        wanted.notes.append(f"the low-level runtime is config.toml's 'runtime', not {binary}")
    return wanted


def _plugin(tree: dict[str, Any]) -> str:
    """The CRI plugin's name: what the file has, since an imported one has no version."""
    present = at(tree, ("plugins",))
    version = tree.get("version", 0)
    if "version" not in tree and isinstance(present, dict):
        for plugin in reversed(_PLUGINS.values()):
            if plugin in present:
                return plugin
    number = version if isinstance(version, int) else 1
    return _PLUGINS[min(max(number, 1), 3)]


def _handler(model: dict[str, Any], runtime: str) -> dict[str, Any]:
    """Ours, with what the model sets to other than nothing."""
    carried = {
        key: value
        for key, value in model.items()
        if value and key not in _NOT_CARRIED and _is_plain(value)
    }
    options = model.get("options", {})
    return {
        **carried,
        "runtime_type": _RUNC,
        "container_annotations": [_ANNOTATIONS],
        "options": {
            **{
                key: value
                for key, value in (options if isinstance(options, dict) else {}).items()
                if value and key not in _NOT_CARRIED_OPTIONS and _is_plain(value)
            },
            "BinaryName": runtime,
        },
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, (str, int)) for item in value)
    return isinstance(value, (str, int))


def _refuse_pod_annotations(handlers: dict[str, Any], options: Options) -> None:
    """A pod's author writes those: he could ask past the device plugin."""
    for name, handler in handlers.items():
        binary = at(handler, ("options", "BinaryName"))
        patterns = at(handler, ("pod_annotations",))
        leads_to_us = name == NAME or binary == options.program
        leads_to_us |= isinstance(binary, str) and os.path.basename(binary) == names.PROGRAM
        if not leads_to_us or not isinstance(patterns, list):
            continue
        for pattern in patterns:
            if _lets_ours_through(str(pattern)):
                raise VcudaError(
                    f"pod_annotations of {written_key((name,))} has '{pattern}': a pod's author "
                    "could ask for any share",
                    options.path,
                    "take it out",
                )


def _lets_ours_through(pattern: str) -> bool:
    """Source: Go's path.Match, by which containerd compares: no `*` crosses a slash."""
    domain, slash, _ = pattern.partition("/")
    return bool(slash) and fnmatch.fnmatchcase(names.ANNOTATION_PREFIX[:-1], domain)


def _imported(tree: dict[str, Any], path: str) -> list[str]:
    patterns = tree.get("imports", [])
    found = []
    for pattern in patterns if isinstance(patterns, list) else []:
        found += glob.glob(os.path.join(os.path.dirname(path), str(pattern)))
    return sorted(set(map(os.path.realpath, found)) - {os.path.realpath(path)})
