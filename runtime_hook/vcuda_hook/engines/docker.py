"""Docker's /etc/docker/daemon.json: a runtime, optionally the default one.

Source: docs.docker.com, "dockerd", "Daemon configuration file".
"""

from __future__ import annotations

from typing import Any

from .plan import NAME, Options, Plan

FILE = "/etc/docker/daemon.json"
FORM = "json"
NEW = "{}\n"
# A reload adds runtimes without a restart of containers; it removes none. Seen with 20.10.24.
AFTER = "systemctl reload docker"
AFTER_REMOVAL = "systemctl restart docker"


def plan(tree: dict[str, Any], options: Options) -> Plan:
    planned = Plan([(("runtimes", NAME), {"path": options.program})])
    if options.default:
        planned.settings.append((("default-runtime",), NAME))
    return planned


def check(tree: dict[str, Any], planned: Plan, options: Options) -> None:
    """Docker reads no other file."""
