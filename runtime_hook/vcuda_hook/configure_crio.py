"""CRI-O: a drop-in of its own in /etc/crio/crio.conf.d, with a runtime handler.

Not run: no CRI-O was at hand. Source: crio.conf(5), "CRIO.RUNTIME.RUNTIMES TABLE", and
crio.conf.d(5).
"""

from __future__ import annotations

from .configure_wish import NAME, Wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .configure_wish import Options

FILE = "/etc/crio/crio.conf.d/99-vcuda.conf"
FORM = "toml"
NEW = ""
AFTER = AFTER_REMOVAL = "systemctl restart crio"


def wish(tree: dict[str, Any], options: Options) -> Wish:
    handler = {"runtime_path": options.program, "runtime_type": "oci"}
    wanted = Wish([(("crio", "runtime", "runtimes", NAME), handler)])
    if options.default:
        wanted.settings.append((("crio", "runtime", "default_runtime"), NAME))
    return wanted
