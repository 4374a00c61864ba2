"""``vcuda doctor``: find faults of this host that affect GPU sharing, each with a hint.

It changes nothing. Each group of checks runs in its own process, which is abandoned if it hangs.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file
from vcuda_oci.system.settings_file import Config

from ..live import in_time
from ..text import table
from . import (
    cdi_specs,
    cgroups,
    containers,
    denials,
    driver,
    driver_limits,
    engines,
    finding,
    installation,
    moves,
    mps,
    nvml_answers,
    state,
    swap,
    upgrade,
)
from .finding import ERROR, INFO, OK, SEVERITIES, UNKNOWN, WARNING, Finding

SETTINGS = "settings"
SECONDS = 10.0
# Each has CHECKS, the names, and examine(settings); unanswered(reason) if a hang itself is a
# finding.
GROUPS: tuple[Any, ...] = (
    driver,
    nvml_answers,
    mps,
    driver_limits,
    installation,
    state,
    engines,
    cdi_specs,
    cgroups,
    denials,
    containers,
    moves,
    swap,
)
CHECKS = (SETTINGS, *(name for group in GROUPS for name in group.CHECKS))
_WIDTH = max(map(len, CHECKS))
_COLOURS = {OK: "green", INFO: "bold", UNKNOWN: "yellow", WARNING: "yellow", ERROR: "red"}


def doctor(arguments: argparse.Namespace, config_path: str) -> int:
    """0: no fault. 1: warnings, or a check could not look. 2: errors."""
    if arguments.upgrade:
        findings = _asked((upgrade,), upgrade.accepted(config_path), SECONDS)
    else:
        findings = examine(config_path, SECONDS)
    if arguments.json:
        table.print_json(list(map(finding.as_json, findings)))
    else:
        for found in findings:
            severity = table.coloured(found.severity.ljust(7), _COLOURS[found.severity])
            print(f"{severity}  {found.name.ljust(_WIDTH)}  {found}")
        print(summary(findings))
    return finding.exit_code(findings)


def examine(config_path: str, seconds: float) -> list[Finding]:
    """At least one finding for each check, in the order of CHECKS."""
    settings, first = settings_or_defaults(config_path)
    return [first, *_asked(GROUPS, settings, seconds)]


def _asked(groups: Sequence[Any], settings: Config, seconds: float) -> list[Finding]:
    questions = [lambda group=group: _answer(group, settings) for group in groups]
    found: list[Finding] = []
    for group, answer in zip(groups, in_time.ask(questions, seconds)):
        if not isinstance(answer, in_time.Unanswered):
            found += [Finding(**fields) for fields in answer]
        elif hasattr(group, "unanswered"):
            found += group.unanswered(answer.reason)
        else:
            found += [
                Finding(name, UNKNOWN, f"not checked: {answer.reason}") for name in group.CHECKS
            ]
    return found


def summary(findings: Sequence[Finding]) -> str:
    """ "2 errors, 1 warning, 18 ok"."""
    counts = []
    for severity in reversed(SEVERITIES):
        count = sum(found.severity == severity for found in findings)
        plural = "s" if count > 1 and severity in (ERROR, WARNING) else ""
        counts += [f"{count} {severity}{plural}"] if count else []
    return ", ".join(counts)


def _answer(group: Any, settings: Config) -> list[dict[str, str]]:
    return [asdict(found) for found in group.examine(settings)]


def settings_or_defaults(path: str) -> tuple[Config, Finding]:
    """The settings, or the defaults if the file is invalid."""
    try:
        settings = settings_file.load_named(path)
    except VcudaError as error:
        broken = finding.of_error(SETTINGS, error)
    else:
        what = "make sense" if os.path.exists(path) else "not there, so the defaults count"
        return settings, Finding(SETTINGS, OK, what, path)
    broken.what += ": no container gets a share, and what follows is of the defaults"
    return settings_file.parse("", path), broken
