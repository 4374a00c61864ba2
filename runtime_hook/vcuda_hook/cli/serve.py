"""``vcuda serve``: the claim socket, on hosts without a node agent."""

from __future__ import annotations

import argparse

from vcuda_oci.start import claim_socket
from vcuda_oci.system import systemd
from vcuda_oci.system.settings_file import Config


def serve(arguments: argparse.Namespace, settings: Config) -> int:
    """Serve until a signal, or until another server takes over. Raises VcudaError: it cannot
    listen.
    """
    opened = claim_socket.ClaimServer(settings.state_dir, settings.path)
    try:
        systemd.notify("READY=1")
        opened.serve()
    finally:
        opened.close()
    return 0
