"""CRI-O: a drop-in in /etc/crio/crio.conf.d with a runtime handler.

The handler is a copy of CRI-O's default one: CRI-O does not start if any handler's monitor (conmon)
is missing. Source: crio.conf(5), "CRIO.RUNTIME.RUNTIMES TABLE"; crio.conf.d(5); CRI-O pkg/config,
TranslateMonitorFields and ValidateRuntimes; seen with 1.36.3.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file

from ..live import low_level
from . import crio_files
from .crio_files import RUNTIMES
from .plan import NAME, Options, Plan
from .text_edit import MISSING, at, is_plain, table_at
from .texts.toml_values import written_key

FILE = "/etc/crio/crio.conf.d/99-vcuda.conf"
FORM = "toml"
NEW = ""
AFTER = AFTER_REMOVAL = "systemctl restart crio"

_DEFAULT = ("crio", "runtime", "default_runtime")
# Keys of the copied handler that are dropped, because they name another program.
_NOT_CARRIED = ("runtime_path", "runtime_config_path", "inherit_default_runtime")
# CRI-O's own default since 1.31, and the one before.
_DEFAULT_NAMES = ("crun", "runc")
_OCI = (None, "", "oci")  # runtime_type of a handler that calls runc or crun
# Where packages install the monitor if it is not in PATH.
_MONITORS = "/usr/libexec/crio:/usr/libexec/podman:/usr/lib/podman"


def plan(tree: dict[str, Any], options: Options) -> Plan:
    """Raises VcudaError: CRI-O or the wrapper would not find a program that it needs."""
    seen = crio_files.read(options.path)
    default, model = _model(seen)
    handler: dict[str, Any] = {"runtime_path": options.program, "runtime_type": "oci"}
    for key, value in model.items():
        if value and key not in handler and key not in _NOT_CARRIED and is_plain(value):
            handler[key] = value
    # CRI-O's old setting `conmon` applies to every handler.
    monitor = at(seen, ("crio", "runtime", "conmon"))
    monitor = handler.get("monitor_path") if monitor in (MISSING, "") else monitor
    handler.update(_monitor(monitor, options))
    planned = Plan([((*RUNTIMES, NAME), handler)])
    if options.default:
        planned.settings.append((_DEFAULT, NAME))
    ours = _low_level_runtime(model.get("runtime_path") or low_level.find(default), options)
    theirs = model.get("runtime_path")
    if theirs and os.path.realpath(theirs) != os.path.realpath(ours):
        planned.notes.append(f"the low-level runtime is config.toml's 'runtime', not {theirs}")
    return planned


def check(tree: dict[str, Any], planned: Plan, options: Options) -> None:
    """Check that the written settings are in effect. Raises VcudaError: CRI-O refuses or ignores
    them.
    """
    answer = crio_files.asked(options.path, "config")
    if answer is not None and answer.returncode != 0:
        lines = answer.stderr.decode(errors="replace").strip().split("\n")
        what = f"CRI-O does not take it: {lines[-1]}"
        raise VcudaError(what, options.path, "correct what it names, and run this again")
    files = crio_files.files(options.path)
    later = files[[path for path, _ in files].index(options.path) + 1 :]
    for path, other in later:
        for key, value in planned.settings:
            if at(other, key) not in (MISSING, value):
                what = (
                    f"{path} sets {written_key(key)} to another value, and counts after this file"
                )
                after = f"{os.path.dirname(options.path)}/zz-vcuda.conf"
                raise VcudaError(what, options.path, f"run this with --config {after}")


def _model(seen: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """CRI-O's default handler and its name, or the next one that runs containers as runc does."""
    handlers = table_at(seen, RUNTIMES)
    default = at(seen, _DEFAULT)
    names = [default, *_DEFAULT_NAMES] if isinstance(default, str) and default else _DEFAULT_NAMES
    for name in names:
        model = handlers.get(name)
        if name != NAME and isinstance(model, dict) and model.get("runtime_type") in _OCI:
            return name, model
    return next(name for name in names if name != NAME), {}


def _monitor(path: Any, options: Options) -> dict[str, str]:
    """The setting that names the monitor, if CRI-O does not find it by itself.

    path: as in CRI-O's files. Raises VcudaError: not on this host.
    """
    if isinstance(path, str) and path:
        if not os.access(path, os.X_OK):
            what = f"CRI-O's monitor {path} is not a program"
            raise VcudaError(what, options.path, "correct monitor_path in CRI-O's configuration")
        return {}
    if shutil.which("conmon"):
        return {}
    found = shutil.which("conmon", path=_MONITORS)
    if not found:
        what = "CRI-O's monitor, conmon, is not in PATH, and no handler names it by monitor_path"
        raise VcudaError(what, options.path, "set monitor_path of CRI-O's default handler")
    return {"monitor_path": found}


def _low_level_runtime(theirs: str | None, options: Options) -> str:
    """The runtime that the wrapper will run. Raises VcudaError: the wrapper would not find it."""
    name = settings_file.load(options.settings).runtime
    found = low_level.find(name)
    if not found:
        hint = f'set runtime = "{theirs}" in {options.settings}' if theirs else "install runc"
        raise VcudaError("no such runtime in PATH", name, hint)
    return found
