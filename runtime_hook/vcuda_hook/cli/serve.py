"""``vcuda serve``: the agent's door, where no node agent runs."""

from __future__ import annotations

from vcuda_oci import door, systemd

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from vcuda_oci.config import Config


def serve(arguments: argparse.Namespace, settings: Config) -> int:
    """Answers until it is stopped or another takes over. Raises VcudaError: it cannot listen."""
    opened = door.Door(settings.state_dir, settings.path)
    try:
        systemd.tell("READY=1")
        opened.serve()
    finally:
        opened.close()
    return 0
