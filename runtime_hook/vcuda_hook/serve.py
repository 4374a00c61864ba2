"""``vcuda serve``: the agent's door, where no node agent runs."""

from __future__ import annotations

import os
import socket

from vcuda_oci import door
from vcuda_oci.errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from vcuda_oci.config import Config


def serve(arguments: argparse.Namespace, settings: Config) -> int:
    """Answers until it is stopped or another takes over. Raises VcudaError: it cannot listen."""
    try:
        opened = door.Door(settings.state_dir)
    except OSError as error:
        raise VcudaError(
            f"cannot listen: {error.strerror or error}",
            f"{settings.state_dir}/{door.NAME}",
            "run it as root, with a state-dir of less than 95 letters",
        ) from error
    try:
        _tell_systemd("READY=1")
        opened.serve()
    finally:
        opened.close()
    return 0


def _tell_systemd(state: str) -> None:
    """Source: sd_notify(3), "Notes"."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect(address.replace("@", "\0", 1))
        notify.send(state.encode())
