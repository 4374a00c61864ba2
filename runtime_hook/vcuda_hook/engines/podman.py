"""Podman: a drop-in in /etc/containers/containers.conf.d with a runtime.

Source: containers.conf(5), "ENGINE.RUNTIMES TABLE".
"""

from __future__ import annotations

from typing import Any

from .plan import NAME, Options, Plan

FILE = "/etc/containers/containers.conf.d/99-vcuda.conf"
FORM = "toml"
NEW = ""
AFTER = AFTER_REMOVAL = ""  # Podman reads it at each start


def plan(tree: dict[str, Any], options: Options) -> Plan:
    note = "containers made with it can be stopped and removed only while it is configured"
    planned = Plan([(("engine", "runtimes", NAME), [options.program])], [note])
    if options.default:
        planned.settings.append((("engine", "runtime"), NAME))
    return planned


def check(tree: dict[str, Any], planned: Plan, options: Options) -> None:
    """No other file can override the handler."""
