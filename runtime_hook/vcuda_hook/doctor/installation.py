"""Check the installation: programs, shim, low-level runtime."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.model import names
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..live import low_level, shim_mark
from . import driver
from .finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding

PROGRAMS, SHIM, RUNTIME, RUNC = "programs", "shim", "low-level-runtime", "runc-version"
CHECKS = (PROGRAMS, SHIM, RUNTIME, RUNC)
LAUNCHER = os.path.join(os.path.dirname(apply_share.HOOK), names.PROGRAM)
_REINSTALL = "reinstall vcuda"
# Source: opencontainers/runc, release notes of 1.1.3 and 1.1.7.
_LOSES_DEVICES = ((1, 1, 3), (1, 1, 6))


class Installation:
    """missing: those of `expected` that do not exist or are not executable.

    shim: its version; "": not vcuda's; None: it cannot be read.
    """

    def __init__(self, expected: Sequence[str], shim_path: str) -> None:
        self.missing = [path for path in expected if not _is_program(path)]
        self.shim_path = shim_path
        try:
            self.shim: str | None = shim_mark.read(shim_path)
        except OSError:
            self.shim = None


@dataclass
class LowLevel:
    """name: as set. path: None: not found. version: the first line of its --version, or "".

    unlinked: device nodes without a link to their number in /dev/char.
    """

    name: str
    path: str | None
    version: str
    unlinked: Sequence[str]


def examine(settings: Config) -> list[Finding]:
    installation = Installation(
        (LAUNCHER, apply_share.HOOK, apply_share.PROCFS_HOOK), apply_share.SHIM
    )
    runtime = read_host(settings)
    return [
        programs(installation),
        shim(installation),
        low_level_runtime(runtime),
        runc_version(runtime),
    ]


def read_host(settings: Config, dev: str = "/dev") -> LowLevel:
    name = settings.runtime
    path = low_level.find(name)
    numbers = driver.read_host(settings.driver_root.rstrip("/")).numbers
    unlinked = [
        "/dev/" + node
        for node, number in numbers.items()
        if number and not os.path.lexists(f"{dev}/char/{number[0]}:{number[1]}")
    ]
    return LowLevel(name, path, low_level.version(path) if path else "", unlinked)


def programs(installation: Installation) -> Finding:
    if installation.missing:
        where = ", ".join(installation.missing)
        return Finding(PROGRAMS, ERROR, "not there, or not executable", where, _REINSTALL)
    return Finding(PROGRAMS, OK, "all are there", os.path.dirname(LAUNCHER))


def shim(installation: Installation) -> Finding:
    expected, path = shim_mark.expected(), installation.shim_path
    if installation.shim is None:
        what = "cannot be read, so no container gets a share"
        return Finding(SHIM, ERROR, what, path, _REINSTALL)
    if not installation.shim:
        return Finding(SHIM, ERROR, "is not vcuda's shim", path, _REINSTALL)
    if installation.shim != expected:
        what = f"is {installation.shim}, and this command goes with {expected}"
        return Finding(SHIM, ERROR, what, path, _REINSTALL)
    return Finding(SHIM, OK, installation.shim, path)


def low_level_runtime(runtime: LowLevel) -> Finding:
    if runtime.path is None:
        hint = "install runc or crun, or set runtime in config.toml"
        return Finding(RUNTIME, ERROR, "no such runtime in PATH", runtime.name, hint)
    if os.path.basename(os.path.realpath(runtime.path)) == names.PROGRAM:
        what = "is vcuda's own wrapper: it would call itself"
        return Finding(RUNTIME, ERROR, what, runtime.path, "set runtime in config.toml to runc")
    if not runtime.version:
        what = "says nothing to --version"
        return Finding(RUNTIME, WARNING, what, runtime.path, "reinstall it, and see that it runs")
    return Finding(RUNTIME, OK, runtime.version, runtime.path)


def runc_version(runtime: LowLevel) -> Finding:
    if runtime.path is None or not runtime.version:
        return Finding(RUNC, UNKNOWN, "not checked: no runtime was found", hint="fix that first")
    name, _, version = runtime.version.partition(" version ")
    if name != "runc":
        return Finding(RUNC, OK, "the low-level runtime is not runc")
    least, most = _LOSES_DEVICES
    if not least <= _numbers(version) <= most:
        return Finding(RUNC, OK, version)
    what = f"runc {version} takes devices away from containers at 'systemctl daemon-reload'"
    hint = "upgrade runc to 1.1.7 or later"
    if runtime.unlinked:
        nodes = ", ".join(runtime.unlinked)
        what += f", as /dev/char has no link for {nodes}"
        return Finding(RUNC, WARNING, what, runtime.path, hint)
    return Finding(RUNC, INFO, what + "; /dev/char has links for the GPU's", runtime.path, hint)


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version: "1.1.5+ds1" and "1.1.5-rc.1" give 1.1.5."""
    plain = version.replace("+", "-").partition("-")[0]
    return tuple(int(part) for part in plain.split(".") if part.isdigit())


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
