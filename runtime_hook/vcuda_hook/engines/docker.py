"""Docker's /etc/docker/daemon.json: a runtime, and perhaps the default one.

Source: docs.docker.com, "dockerd", "Daemon configuration file".
"""

from __future__ import annotations

from .wanted import NAME, Options, Wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FILE = "/etc/docker/daemon.json"
FORM = "json"
NEW = "{}\n"
# A reload adds runtimes, and no container notices; it takes none away. Seen with 20.10.24.
AFTER = "systemctl reload docker"
AFTER_REMOVAL = "systemctl restart docker"


def wish(tree: dict[str, Any], options: Options) -> Wish:
    wanted = Wish([(("runtimes", NAME), {"path": options.program})])
    if options.default:
        wanted.settings.append((("default-runtime",), NAME))
    return wanted


def check(tree: dict[str, Any], wanted: Wish, options: Options) -> None:
    """Nothing in other files can take this away."""
