"""Podman: a drop-in of its own in /etc/containers/containers.conf.d, with a runtime.

Source: containers.conf(5), "ENGINE.RUNTIMES TABLE".
"""

from __future__ import annotations

from .wanted import NAME, Options, Wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FILE = "/etc/containers/containers.conf.d/99-vcuda.conf"
FORM = "toml"
NEW = ""
AFTER = AFTER_REMOVAL = ""  # Podman reads it at each start


def wish(tree: dict[str, Any], options: Options) -> Wish:
    wanted = Wish([(("engine", "runtimes", NAME), [options.program])])
    if options.default:
        wanted.settings.append((("engine", "runtime"), NAME))
    wanted.notes.append(
        "containers made with it can be stopped and removed only while it is configured"
    )
    return wanted


def check(tree: dict[str, Any], wanted: Wish, options: Options) -> None:
    """Nothing in other files can take this away."""
