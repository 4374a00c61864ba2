"""containerd's config.toml: a runtime handler of the CRI plugin, for Kubernetes and crictl.

The handler is a copy of the default one in the merged configuration, imported files included, so
that its containers get the same cgroups. If the files name no handler, the default one is written
too: containerd 1.x drops its built-in runc as soon as one is named. Seen with 1.6.20 and 2.3.4.
Source: containerd docs/cri/config.md.
"""

from __future__ import annotations

import fnmatch
import os
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from . import containerd_files
from .containerd_files import PLUGINS, View
from .plan import NAME, Options, Plan
from .text_edit import MISSING, at, is_plain, table_at
from .texts.toml_document import Path
from .texts.toml_values import written_key

FILE = containerd_files.FILE
FORM = "toml"
NEW = "version = 2\n"
AFTER = AFTER_REMOVAL = "systemctl restart containerd"

_RUNTIMES = ("containerd", "runtimes")  # below the CRI plugin
_RUNC = "io.containerd.runc.v2"
_ANNOTATIONS = names.ANNOTATION_PREFIX + "*"
# Keys of the copied handler that are dropped: they name another program, or pass annotations.
_NOT_CARRIED = ("container_annotations", "pod_annotations", "runtime_path", "runtime_engine")
_NOT_CARRIED_OPTIONS = ("BinaryName",)
_DEFAULTS = {"sandboxer": "podsandbox"}  # as the merged configuration of containerd 2 has it


def plan(tree: dict[str, Any], options: Options) -> Plan:
    """Raises VcudaError: the handler would have no effect, or would let a pod's author request a
    share.
    """
    written = containerd_files.view(options.path, tree)
    return plan_in(tree, written, containerd_files.dumped(options.path) or written, options)


def plan_in(tree: dict[str, Any], written: View, merged: View, options: Options) -> Plan:
    """written: the files' content. merged: with containerd's defaults."""
    path = options.path
    plugin = containerd_files.plugin_of(tree)
    if merged.cri_is_disabled or written.cri_is_disabled:
        raise VcudaError("disables the CRI plugin", path, "take it out of disabled_plugins")
    containerd: Path = ("plugins", plugin, "containerd")
    handlers = table_at(merged.cri, _RUNTIMES)
    _refuse_pod_annotations(handlers, options)
    default = at(merged.cri, ("containerd", "default_runtime_name"))
    default = default if isinstance(default, str) and default else "runc"
    model = _model(handlers, default)
    planned = Plan([])
    if not table_at(written.cri, _RUNTIMES):
        planned.settings.append(((*containerd, "runtimes", default), {"runtime_type": _RUNC}))
    planned.settings.append(((*containerd, "runtimes", NAME), _handler(model, options.program)))
    if options.default:
        planned.settings.append(((*containerd, "default_runtime_name"), NAME))
    binary = at(model, ("options", "BinaryName"))
    if isinstance(binary, str) and binary not in ("", "runc", options.program):
        planned.notes.append(f"the low-level runtime is config.toml's 'runtime', not {binary}")
    return planned


def check(tree: dict[str, Any], planned: Plan, options: Options) -> None:
    """Check that the written settings are in effect.

    Raises VcudaError: containerd does not see them, or an imported file overrides them.
    """
    merged = containerd_files.dumped(options.path)
    if merged is None:
        if error := _replaced_section(tree, options):
            raise error
        merged = containerd_files.view(options.path, tree)
    for path, value in planned.settings:
        key = path[2:]  # below the CRI plugin; its name depends on the file's version
        if not _says(at(merged.cri, key), value):
            raise _hidden(tree, key, value, options)


def _hidden(tree: dict[str, Any], key: Path, value: Any, options: Options) -> VcudaError:
    """The error that names the file which overrides our setting."""
    where = os.path.realpath(options.path)
    for path, other in containerd_files.later(options.path, tree):
        for plugin in PLUGINS.values():
            theirs = at(containerd_files.section(other, plugin), key)
            if theirs is not MISSING and not _says(theirs, value):
                what = (
                    f"{path} sets {written_key(key)} to another value, and counts after this file"
                )
                return VcudaError(what, where, f"run this with --config {_after(path)}")
    if error := _replaced_section(tree, options):
        return error
    what = f"containerd does not take {written_key(key)} from this file"
    return VcudaError(what, where, "see 'containerd config dump', and name its file by --config")


def _replaced_section(tree: dict[str, Any], options: Options) -> VcudaError | None:
    """The error of an imported file with a section for the CRI, which replaces ours in containerd
    1; None: there is none.
    """
    plugin = containerd_files.plugin_of(tree)
    for path, other in containerd_files.later(options.path, tree):
        if plugin != PLUGINS[3] and containerd_files.section(other, plugin):
            what = f"imports {path}, and the section there for {plugin} replaces this file's"
            return VcudaError(what, options.path, f"run this with --config {path}")
    return None


def _after(path: str) -> str:
    """A file in the same folder that is read after `path`."""
    folder, name = os.path.split(path)
    return f"{folder}/{'99-vcuda.toml' if name < '99-vcuda.toml' else 'zz-vcuda.toml'}"


def _says(known: Any, value: Any) -> bool:
    """Whether `known` equals `value`, or is a table that contains it."""
    if isinstance(value, dict):
        return isinstance(known, dict) and all(
            _says(known.get(name, MISSING), item) for name, item in value.items()
        )
    return bool(known == value)


def _model(handlers: dict[str, Any], default: str) -> dict[str, Any]:
    """The handler to copy: the default one, or runc if the default is of another kind."""
    for name in (default, "runc"):
        model = handlers.get(name)
        if name == NAME or not isinstance(model, dict):
            continue
        binary = os.path.basename(str(at(model, ("options", "BinaryName"))))
        if (model.get("runtime_type") or _RUNC) == _RUNC and not binary.startswith("nvidia-"):
            return model
    return {}


def _handler(model: dict[str, Any], runtime: str) -> dict[str, Any]:
    """The handler for vcuda, with the model's non-empty values."""
    carried = {
        key: value
        for key, value in model.items()
        if value and key not in _NOT_CARRIED and value != _DEFAULTS.get(key) and is_plain(value)
    }
    return {
        **carried,
        "runtime_type": _RUNC,
        "container_annotations": [_ANNOTATIONS],
        "options": {
            **{
                key: value
                for key, value in table_at(model, ("options",)).items()
                if value and key not in _NOT_CARRIED_OPTIONS and is_plain(value)
            },
            "BinaryName": runtime,
        },
    }


def _refuse_pod_annotations(handlers: dict[str, Any], options: Options) -> None:
    """Refuse handlers that pass pods' annotations: they could request past the device plugin."""
    for name, handler in handlers.items():
        binary = at(handler, ("options", "BinaryName"))
        patterns = at(handler, ("pod_annotations",))
        leads_to_us = name == NAME or binary == options.program
        leads_to_us |= isinstance(binary, str) and os.path.basename(binary) == names.PROGRAM
        if not leads_to_us or not isinstance(patterns, list):
            continue
        for pattern in patterns:
            if _lets_ours_through(str(pattern)):
                what = f"pod_annotations of {written_key((name,))} has '{pattern}'"
                what += ": a pod's author could ask for any share"
                raise VcudaError(what, options.path, "take it out")


def _lets_ours_through(pattern: str) -> bool:
    """Whether our annotations match. Source: Go's path.Match, which containerd uses: `*` matches no
    slash.
    """
    domain, slash, _ = pattern.partition("/")
    return bool(slash) and fnmatch.fnmatchcase(names.ANNOTATION_PREFIX[:-1], domain)
